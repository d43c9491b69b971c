package dev.perdure.examples;

import io.temporal.activity.ActivityOptions;
import io.temporal.failure.CanceledFailure;
import io.temporal.workflow.Workflow;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** The workflow: a sleep between two bills may take a month, and no worker has to be there meanwhile. */
public class SubscriptionImpl implements Subscription {
  private static final int MONTHS = 12;

  private final Billing billing =
      Workflow.newActivityStub(
          Billing.class,
          ActivityOptions.newBuilder().setStartToCloseTimeout(Duration.ofSeconds(30)).build());
  private final List<String> receipts = new ArrayList<>();

  @Override
  public List<String> run(String customer, double periodSeconds) {
    try {
      for (int month = 1; month <= MONTHS; month++) {
        receipts.add(billing.bill(customer, month));
        Workflow.sleep(Duration.ofMillis(Math.round(periodSeconds * 1000)));
      }
    } catch (CanceledFailure cancelled) {
      // The workflow's own scope is cancelled and starts nothing anymore: cleaning up takes a detached one.
      Workflow.newDetachedCancellationScope(() -> receipts.add(billing.sayGoodbye(customer))).run();
    }
    return receipts;
  }

  @Override
  public List<String> soFar() {
    return receipts;
  }
}
