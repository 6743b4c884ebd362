// A web server of files.
// usage: server PORT FOLDER
package main

import (
	"net/http"
	"os"
)

func main() {
	err := http.ListenAndServe("127.0.0.1:"+os.Args[1], http.FileServer(http.Dir(os.Args[2])))
	println(err.Error())
	os.Exit(1)
}
