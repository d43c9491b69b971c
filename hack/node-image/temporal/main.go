// Temporal's own server on loopback ports: tests/fidelity and tests/bench compare Perdure with it.
//
// By default, it keeps everything in memory, on ports that it chooses. With -file and -ports, it
// keeps its state in a file, so that it can be killed and started again. The other arguments are
// dynamic configuration, as name=value with a value in YAML. It prints its gRPC address, its
// namespace, and, in memory, its HTTP address, and exits when its standard input is closed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/testing/freeport"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
	"gopkg.in/yaml.v3"
)

func main() {
	file := flag.String("file", "", "a SQLite file for the state, created if it does not exist")
	ports := flag.String("ports", "", "with -file: the ports of the frontend and of three other services")
	flag.Parse()
	configured := temporal.WithDynamicConfigClient(dynamicConfig(flag.Args()))
	if *file != "" {
		server, address, err := durable(*file, strings.Split(*ports, ","), configured)
		if err == nil {
			err = server.Start()
		}
		if err != nil {
			fail(err)
		}
		fmt.Println(address, namespace)
		wait()
		if err := server.Stop(); err != nil {
			fail(err)
		}
		return
	}
	httpPort := freeport.MustGetFreePort()
	server := temporaltest.NewServer(temporaltest.WithBaseServerOptions(configured, serveHTTP(httpPort)))
	fmt.Printf("%s %s %s:%d\n", server.GetFrontendHostPort(), server.GetDefaultNamespace(), loopback, httpPort)
	wait()
	server.Stop()
}

func wait() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// Temporal's defaults, but for what tests need: new search attributes are found immediately, and
// standalone Nexus operations are served.
func dynamicConfig(arguments []string) dynamicconfig.StaticClient {
	values := dynamicconfig.StaticClient{
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true,
		dynamicconfig.MakeKey("nexusoperation.enableStandalone"):    true,
	}
	for _, argument := range arguments {
		name, text, _ := strings.Cut(argument, "=")
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			fail(fmt.Errorf("%s: %w", argument, err))
		}
		values[dynamicconfig.MakeKey(name)] = value
	}
	return values
}

// Serve HTTP, too: Temporal's server calls its own handlers of Nexus operations over it. The
// claim mapper stays the default one; temporaltest hands the configuration to nothing else.
func serveHTTP(port int) temporal.ServerOption {
	return temporal.WithClaimMapper(func(served *config.Config) authorization.ClaimMapper {
		frontend := served.Services["frontend"]
		frontend.RPC.HTTPPort = port
		served.Services["frontend"] = frontend
		return authorization.NewNoopClaimMapper()
	})
}
