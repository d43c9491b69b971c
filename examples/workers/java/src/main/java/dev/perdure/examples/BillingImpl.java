package dev.perdure.examples;

import io.temporal.failure.ApplicationFailure;

/** Activities that print instead of charging anybody. */
public class BillingImpl implements Billing {
  @Override
  public String bill(String customer, int month) {
    if (customer.isEmpty()) {
      throw ApplicationFailure.newNonRetryableFailure("the subscription has no customer", "NoCustomer");
    }
    return customer + " paid for month " + month;
  }

  @Override
  public String sayGoodbye(String customer) {
    return "goodbye, " + customer;
  }
}
