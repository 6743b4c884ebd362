import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

/** A web server of files that reads each file anew. usage: Server PORT FOLDER */
class Server {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[1]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] content = Files.readAllBytes(folder.resolve(exchange.getRequestURI().getPath().substring(1)));
            exchange.sendResponseHeaders(200, content.length);
            try (var out = exchange.getResponseBody()) {
                out.write(content);
            }
        });
        server.start();
    }
}
