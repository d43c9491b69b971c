package dev.perdure.examples;

import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.temporal.authorization.AuthorizationGrpcMetadataProvider;
import io.temporal.client.WorkflowClient;
import io.temporal.client.WorkflowClientOptions;
import io.temporal.common.VersioningBehavior;
import io.temporal.common.WorkerDeploymentVersion;
import io.temporal.serviceclient.WorkflowServiceStubs;
import io.temporal.serviceclient.WorkflowServiceStubsOptions;
import io.temporal.worker.Worker;
import io.temporal.worker.WorkerDeploymentOptions;
import io.temporal.worker.WorkerFactory;
import io.temporal.worker.WorkerOptions;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The worker of the Java example. It runs until it is stopped. */
public final class SubscriptionWorker {
  /** Where worker.yaml mounts a token for the frontend, and the authority that signed the frontend's certificate. */
  private static final Path FOLDER =
      Path.of(System.getenv().getOrDefault("PERDURE_CREDENTIALS", "/var/run/perdure"));

  private SubscriptionWorker() {}

  /** Connects and polls the task queue "subscriptions". */
  public static void main(String[] args) throws IOException {
    WorkflowClient client =
        WorkflowClient.newInstance(
            WorkflowServiceStubs.newServiceStubs(options()),
            WorkflowClientOptions.newBuilder()
                .setNamespace(System.getenv().getOrDefault("TEMPORAL_NAMESPACE", "default"))
                .build());
    WorkerFactory factory = WorkerFactory.newInstance(client);
    Worker worker = factory.newWorker("subscriptions", workerOptions());
    worker.registerWorkflowImplementationTypes(SubscriptionImpl.class);
    worker.registerActivitiesImplementations(new BillingImpl());
    factory.start();
  }

  /** Returns the version that a WorkerDeployment gives to its pods; none elsewhere. */
  private static WorkerOptions workerOptions() {
    String name = System.getenv("TEMPORAL_DEPLOYMENT_NAME");
    if (name == null) {
      return WorkerOptions.getDefaultInstance();
    }
    WorkerDeploymentVersion version =
        new WorkerDeploymentVersion(name, System.getenv("TEMPORAL_WORKER_BUILD_ID"));
    return WorkerOptions.newBuilder()
        .setDeploymentOptions(
            WorkerDeploymentOptions.newBuilder()
                .setUseVersioning(true)
                .setVersion(version)
                .setDefaultVersioningBehavior(VersioningBehavior.PINNED)
                .build())
        .build();
  }

  /** Returns how to connect: with the token and by TLS in a cluster, in the clear elsewhere. */
  private static WorkflowServiceStubsOptions options() throws IOException {
    WorkflowServiceStubsOptions.Builder found = WorkflowServiceStubsOptions.newBuilder();
    found.setTarget(System.getenv().getOrDefault("TEMPORAL_ADDRESS", "perdure-temporal.perdure-system:7233"));
    Path authority = FOLDER.resolve("ca.crt");
    if (Files.exists(authority)) {
      try (InputStream certificate = Files.newInputStream(authority)) {
        found.setSslContext(GrpcSslContexts.forClient().trustManager(certificate).build());
      }
      // Read for each request: the kubelet renews the token.
      found.addGrpcMetadataProvider(new AuthorizationGrpcMetadataProvider(SubscriptionWorker::bearer));
    }
    return found.build();
  }

  private static String bearer() {
    try {
      return "Bearer " + Files.readString(FOLDER.resolve("token"));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
