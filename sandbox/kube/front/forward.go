package front

import (
	"flag"
	"io"
	"log"
	"net"
	"strings"
	"sync"
)

// Forward passes connections on until it is killed. The API server is always there; a forward at its public address is
// what makes a cluster exist for everybody else.
func Forward() {
	listen := flag.String("listen", "", "address, or a unix socket's path")
	to := flag.String("to", "", "address, or a unix socket's path")
	flag.Parse()
	l, err := net.Listen(network(*listen), *listen)
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go pass(c, *to)
	}
}

func network(address string) string {
	if strings.Contains(address, "/") {
		return "unix"
	}
	return "tcp4"
}

func pass(c net.Conn, to string) {
	defer c.Close()
	b, err := net.Dial(network(to), to)
	if err != nil {
		log.Print(err)
		return
	}
	defer b.Close()
	var both sync.WaitGroup
	both.Add(2)
	one := func(to, from net.Conn) {
		defer both.Done()
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	go one(c, b)
	go one(b, c)
	both.Wait()
}
