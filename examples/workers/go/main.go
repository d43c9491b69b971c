// The worker of the Go example. It runs until it is stopped.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"os"
	"path/filepath"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// folder is where worker.yaml mounts a token for the frontend, and the authority that signed the frontend's certificate.
var folder = cmp.Or(os.Getenv("PERDURE_CREDENTIALS"), "/var/run/perdure")

const taskQueue = "subscriptions"

// options returns how to connect: with the token and by TLS in a cluster, in the clear elsewhere.
func options() (client.Options, error) {
	found := client.Options{
		HostPort:  cmp.Or(os.Getenv("TEMPORAL_ADDRESS"), "perdure-temporal.perdure-system:7233"),
		Namespace: cmp.Or(os.Getenv("TEMPORAL_NAMESPACE"), "default"),
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return found, errors.New("ca.crt has no certificate")
	}
	found.ConnectionOptions.TLS = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}
	// Read for each request: the kubelet renews the token.
	found.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) {
		token, err := os.ReadFile(filepath.Join(folder, "token"))
		return string(token), err
	})
	return found, nil
}

// versioning returns the version that a WorkerDeployment gives to its pods; none elsewhere.
func versioning() worker.DeploymentOptions {
	name, build := os.Getenv("TEMPORAL_DEPLOYMENT_NAME"), os.Getenv("TEMPORAL_WORKER_BUILD_ID")
	if name == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: name, BuildID: build},
		DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}
}

func main() {
	found, err := options()
	if err != nil {
		log.Fatal(err)
	}
	connection, err := client.Dial(found)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	working := worker.New(connection, taskQueue, worker.Options{DeploymentOptions: versioning()})
	working.RegisterWorkflow(Subscription)
	working.RegisterActivity(Bill)
	working.RegisterActivity(SayGoodbye)
	if err := working.Run(worker.InterruptCh()); err != nil {
		log.Fatal(err)
	}
}
