import { existsSync, readFileSync } from 'node:fs';
import { NativeConnection, Worker, type WorkerDeploymentOptions } from '@temporalio/worker';
import * as activities from './activities';

/** Where worker.yaml mounts a token for the frontend, and the authority that signed the frontend's certificate. */
const FOLDER = process.env.PERDURE_CREDENTIALS ?? '/var/run/perdure';
const ONE_MINUTE = 60_000;

/** The version that a WorkerDeployment gives to its pods; none elsewhere. */
function versioning(): WorkerDeploymentOptions | undefined {
  const deploymentName = process.env.TEMPORAL_DEPLOYMENT_NAME;
  const buildId = process.env.TEMPORAL_WORKER_BUILD_ID;
  if (!deploymentName || !buildId) {
    return undefined;
  }
  return { useWorkerVersioning: true, version: { deploymentName, buildId }, defaultVersioningBehavior: 'PINNED' };
}

async function main(): Promise<void> {
  const secured = existsSync(`${FOLDER}/ca.crt`);
  const token = () => readFileSync(`${FOLDER}/token`, 'utf8');
  const connection = await NativeConnection.connect({
    address: process.env.TEMPORAL_ADDRESS ?? 'perdure-temporal.perdure-system:7233',
    tls: secured ? { serverRootCACertificate: readFileSync(`${FOLDER}/ca.crt`) } : false,
    apiKey: secured ? token() : undefined,
  });
  const worker = await Worker.create({
    connection,
    namespace: process.env.TEMPORAL_NAMESPACE ?? 'default',
    taskQueue: 'subscriptions',
    workflowsPath: require.resolve('./workflows'),
    activities,
    workerDeploymentOptions: versioning(),
  });
  // The kubelet renews the token.
  const renewal = secured ? setInterval(() => void connection.setApiKey(token()), ONE_MINUTE) : undefined;
  try {
    await worker.run();
  } finally {
    clearInterval(renewal);
    await connection.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
