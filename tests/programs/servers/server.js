// A web server of files that answers each request with a buffer of its own.
// usage: server.js PORT FOLDER
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");

const [port, folder] = process.argv.slice(2);
http
  .createServer((request, response) => {
    fs.readFile(path.join(folder, path.basename(request.url)), (error, content) => {
      response.writeHead(error ? 404 : 200);
      response.end(content);
    });
  })
  .listen(Number(port), "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
