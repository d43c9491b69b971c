package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	schema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	loopback  = "127.0.0.1"
	active    = "active"
	namespace = "default"
)

// A server whose state is in a file, so that it continues after it was killed: the settings are
// those of `temporal server start-dev --db-filename`. Its services have fixed ports and know
// each other without gossip: a restarted one would wait for its own former self. Returns the
// address of the frontend, too.
func durable(file string, ports []string, options ...temporal.ServerOption) (temporal.Server, string, error) {
	if len(ports) != len(temporal.DefaultServices) {
		return nil, "", fmt.Errorf("-ports needs %d numbers", len(temporal.DefaultServices))
	}
	stored := &config.SQL{
		PluginName:        sqlite.PluginName,
		DatabaseName:      file,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "normal"},
	}
	if err := prepare(stored); err != nil {
		return nil, "", err
	}
	services, hosts := map[string]config.Service{}, map[primitives.ServiceName]static.Hosts{}
	for index, name := range temporal.DefaultServices {
		port, err := strconv.Atoi(ports[index])
		if err != nil {
			return nil, "", err
		}
		services[name] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback}}
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(fmt.Sprintf("%s:%d", loopback, port))
	}
	frontend := hosts[primitives.FrontendService].Self
	disabled := config.ArchivalNamespaceDefaults{
		History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
		Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
	}
	settings := &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: stored}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        active,
			CurrentClusterName:       active,
			ClusterInformation: map[string]cluster.ClusterInformation{
				active: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{
			History:    config.HistoryArchival{State: "disabled"},
			Visibility: config.VisibilityArchival{State: "disabled"},
		},
		PublicClient:      config.PublicClient{HostPort: frontend},
		NamespaceDefaults: config.NamespaceDefaults{Archival: disabled},
	}
	server, err := temporal.NewServer(append([]temporal.ServerOption{
		temporal.WithConfig(settings),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewNoopLogger()),
	}, options...)...)
	return server, frontend, err
}

// Create the tables in a new file, and the namespace unless it exists.
func prepare(stored *config.SQL) error {
	if _, err := os.Stat(stored.DatabaseName); errors.Is(err, os.ErrNotExist) {
		if err := schema.SetupSchema(stored); err != nil {
			return err
		}
	}
	created, err := schema.NewNamespaceConfig(active, namespace, false, nil)
	if err != nil {
		return err
	}
	return schema.CreateNamespaces(stored, created)
}
