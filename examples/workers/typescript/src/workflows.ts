import { CancellationScope, defineQuery, isCancellation, proxyActivities, setHandler, sleep } from '@temporalio/workflow';
import type * as activities from './activities';

const { bill, sayGoodbye } = proxyActivities<typeof activities>({ startToCloseTimeout: '30 seconds' });

const MONTHS = 12;

export const soFar = defineQuery<string[]>('so_far');

/**
 * Bills a customer once per period for a year. When it is cancelled, it says goodbye and completes. The query "so_far"
 * returns the receipts.
 */
export async function Subscription(customer: string, periodSeconds: number): Promise<string[]> {
  const receipts: string[] = [];
  setHandler(soFar, () => receipts);
  try {
    for (let month = 1; month <= MONTHS; month++) {
      receipts.push(await bill(customer, month));
      await sleep(periodSeconds * 1000);
    }
  } catch (error) {
    if (!isCancellation(error)) {
      throw error;
    }
    // The workflow's own scope is cancelled and starts nothing anymore: cleaning up takes one that cannot be cancelled.
    await CancellationScope.nonCancellable(async () => receipts.push(await sayGoodbye(customer)));
  }
  return receipts;
}
