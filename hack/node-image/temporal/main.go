// Temporal's own server, in memory, on loopback ports that it chooses: tests/fidelity compares
// Perdure with it. Its arguments are dynamic configuration, as name=value with a value in YAML. It
// prints its gRPC address, its namespace, and its HTTP address, and exits when its standard input
// is closed.
package main

import (
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
	httpPort := freeport.MustGetFreePort()
	server := temporaltest.NewServer(temporaltest.WithBaseServerOptions(
		temporal.WithDynamicConfigClient(dynamicConfig(os.Args[1:])),
		serveHTTP(httpPort),
	))
	fmt.Printf("%s %s 127.0.0.1:%d\n", server.GetFrontendHostPort(), server.GetDefaultNamespace(), httpPort)
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Stop()
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
			fmt.Fprintf(os.Stderr, "%s: %v\n", argument, err)
			os.Exit(2)
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
