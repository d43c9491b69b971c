import { ApplicationFailure } from '@temporalio/common';

/** Charges a customer for a month and returns the receipt. */
export async function bill(customer: string, month: number): Promise<string> {
  if (!customer) {
    throw ApplicationFailure.nonRetryable('the subscription has no customer', 'NoCustomer');
  }
  return `${customer} paid for month ${month}`;
}

/** Confirms to a customer that the subscription has ended. */
export async function sayGoodbye(customer: string): Promise<string> {
  return `goodbye, ${customer}`;
}
