package dev.perdure.examples;

import io.temporal.activity.ActivityInterface;

/** The activities of a subscription. */
@ActivityInterface
public interface Billing {
  /** Charges a customer for a month and returns the receipt. */
  String bill(String customer, int month);

  /** Confirms to a customer that the subscription has ended. */
  String sayGoodbye(String customer);
}
