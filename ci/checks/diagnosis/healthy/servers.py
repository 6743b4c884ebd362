"""Servers, most of them at rest after their start."""

import glob
import os

from programs.running import Start, free_port

from .table import healthy

AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def owned(room, user):
    """Makes a folder that belongs to a user."""
    room.path.chmod(0o755)
    room.run("install", "-d", "-o", user, room.path / "data")
    return room.path / "data"


def postgres(room, *more):
    data = owned(room, "postgres")
    folder = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    room.run(*AS_POSTGRES, f"{folder}/initdb", "-D", data, "-A", "trust")
    return [*AS_POSTGRES, f"{folder}/postgres", "-D", data, "-k", data, "-h", "", *more]


@healthy("postgres", "postgresql")
def _(room):
    return Start(postgres(room), "ready to accept connections")


@healthy("postgres-large-buffers", "postgresql")
def _(room):
    return Start(postgres(room, "-c", "shared_buffers=2GB", "-c", "max_connections=500", "-c", "jit=on"), "ready to accept connections")


@healthy("mariadb", "mariadb-server")
def _(room):
    data = owned(room, "mysql")
    room.run("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--auth-root-authentication-method=normal")
    return Start(["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={data}/socket", "--skip-networking"],
                 "ready for connections")


@healthy("redis", "redis-server:redis-server")
def _(room):
    return Start(["redis-server", "--port", "0", "--unixsocket", "here", "--save", ""], "ready to accept connections")


@healthy("redis-filled", "redis-server:redis-server", "redis-cli:redis-tools")
def _(room):
    text = """redis-server --port 0 --unixsocket here --save '' >log &
until redis-cli -s here ping 2>/dev/null | grep -q PONG; do :; done
redis-cli -s here debug populate 400000 key 300; redis-cli -s here eval "for i = 0, 399999 do if i % 3 > 0 then redis.call('del', 'key:' .. i) end end" 0
echo ready; wait
"""
    return Start(["sh", room.write("fill.sh", text)], inside="redis-server")


@healthy("memcached", "memcached")
def _(room):
    return Start(["memcached", "-u", "root", "-s", "here", "-m", "512", "-t", "16"], until=room.answers("here"))


@healthy("nginx", "nginx:nginx-light")
def _(room):
    text = f"error_log stderr; pid pid; events {{}} http {{ access_log off; server {{ listen unix:{room.path}/here; }} }}"
    return Start(["nginx", "-p", room.path, "-c", room.write("conf", text), "-g", "daemon off;"], until=room.answers("here"))


@healthy("apache", "apache2")
def _(room):
    text = f"""ServerRoot /usr/lib/apache2
PidFile {room.path}/pid
ErrorLog /dev/stderr
ServerName here
Listen 127.0.0.1:{(port := free_port())}
DocumentRoot /var/www
User nobody
Group nogroup
DefaultRuntimeDir {room.path}
"""
    text += "".join(f"LoadModule {name}_module modules/mod_{name}.so\n" for name in "mpm_event authz_core ssl proxy proxy_http http2 deflate".split())
    return Start(["apache2", "-DFOREGROUND", "-f", room.write("conf", text)], until=room.answers(port))


@healthy("lighttpd", "lighttpd")
def _(room):
    text = f'server.document-root = "/var/www"\nserver.bind = "{room.path}/here"\nserver.port = 0\n'
    return Start(["lighttpd", "-D", "-f", room.write("conf", text)], until=room.answers("here"))


@healthy("haproxy", "haproxy")
def _(room):
    text = f"defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\nfrontend all\n bind unix@{room.path}/here\n"
    return Start(["haproxy", "-db", "-f", room.write("conf", text)], until=room.answers("here"))


@healthy("varnish", "varnish", "gcc:gcc")
def _(room):
    room.path.chmod(0o755)
    return Start(["varnishd", "-F", "-j", "none", "-n", room.path / "state", "-b", "none", "-a", f"127.0.0.1:{free_port()}"], "Child launched OK|Child .* said Child starts",
                 inside="cache-main")


@healthy("unbound", "unbound")
def _(room):
    port = free_port()
    text = f"server:\n port: {port}\n interface: 127.0.0.1\n do-daemonize: no\n chroot: \"\"\n username: \"\"\n num-threads: 4\n pidfile: \"\"\n use-syslog: no\n logfile: \"\"\nremote-control:\n control-enable: no\n"
    return Start(["unbound", "-d", "-c", room.write("conf", text)], until=room.answers(port))


@healthy("dnsmasq", "dnsmasq")
def _(room):
    port = free_port()
    return Start(["dnsmasq", "-k", "-p", port, "-a", "127.0.0.1", "--bind-interfaces", "-C", "/dev/null", "-x", room.path / "pid", "-u", "root"],
                 until=room.answers(port))


@healthy("slapd", "slapd")
def _(room):
    (room.path / "data").mkdir()
    text = f"""include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
maxsize 107374182400
suffix "dc=here"
directory {room.path}/data
"""
    port = free_port()
    return Start(["slapd", "-d", "0", "-f", room.write("conf", text), "-h", f"ldap://127.0.0.1:{port}"], until=room.answers(port))


@healthy("message-bus", "dbus")
def _(room):
    return Start(["dbus-daemon", "--session", "--nofork", "--print-address"], "^unix:")


@healthy("python-http", "python3")
def _(room):
    return Start(["/usr/bin/python3", "-u", "-m", "http.server", free_port(), "--bind", "127.0.0.1"], "Serving")


@healthy("gunicorn", "gunicorn")
def _(room):
    room.write("app.py", "def app(environ, start):\n    start('200 OK', [])\n    return [b'here']\n")
    return Start(["gunicorn", "-b", f"unix:{room.path}/here", "-w", "3", "--threads", "8", "app:app"], "Booting worker")


@healthy("php-http", "php:php-cli")
def _(room):
    return Start(["php", "-S", f"127.0.0.1:{free_port()}"], "started")


@healthy("php-fpm", "php-fpm")
def _(room):
    program = sorted(glob.glob("/usr/sbin/php-fpm*"))[-1]
    text = f"[global]\nerror_log=/dev/stderr\n[www]\nlisten={room.path}/here\nuser=nobody\npm=static\npm.max_children=4\n"
    return Start([program, "-F", "-R", "-y", room.write("conf", text)], "ready to handle connections")


@healthy("node-http", "node:nodejs")
def _(room):
    return Start(["node", "-e", "require('http').createServer((q,r)=>r.end('x')).listen('here',()=>console.log('ready'))"])


@healthy("java-http", "javac:default-jdk-headless")
def _(room):
    text = """import com.sun.net.httpserver.*; import java.net.*; import java.util.concurrent.*;
class Server { public static void main(String[] words) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.setExecutor(Executors.newFixedThreadPool(40)); server.start();
    for (int k = 0; k < 40; k++) ((ThreadPoolExecutor) server.getExecutor()).prestartCoreThread();
    System.out.println("ready"); } }"""
    room.run("javac", "-d", room.path, room.write("Server.java", text))
    return Start(["java", "-cp", room.path, "Server"])


@healthy("ruby-server", "ruby")
def _(room):
    text = "require 'socket'\ns = UNIXServer.new('here')\nt = (1..20).map { Thread.new { loop { s.accept.close } } }\nputs 'ready'; $stdout.flush\nsleep"
    return Start(["ruby", room.write("server.rb", text)])


@healthy("erlang-server", "erlang-base")
def _(room):
    text = "{ok, S} = gen_tcp:listen(0, []), io:format(\"ready~n\"), gen_tcp:accept(S)."
    return Start(["erl", "-noshell", "-eval", text], inside="beam.smp", env={"HOME": os.fspath(room.path)})
