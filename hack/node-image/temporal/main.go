// Temporal's own server, in memory, on a loopback port that it chooses: tests/fidelity compares
// Perdure with it. It prints its address and its namespace, and exits when its standard input
// is closed.
package main

import (
	"fmt"
	"io"
	"os"

	"go.temporal.io/server/temporaltest"
)

func main() {
	server := temporaltest.NewServer()
	fmt.Println(server.GetFrontendHostPort(), server.GetDefaultNamespace())
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Stop()
}
