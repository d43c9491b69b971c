package dev.perdure.examples;

import io.temporal.workflow.QueryMethod;
import io.temporal.workflow.WorkflowInterface;
import io.temporal.workflow.WorkflowMethod;
import java.util.List;

/** Bills a customer once per period for a year. When it is cancelled, it says goodbye and ends as cancelled. */
@WorkflowInterface
public interface Subscription {
  /** Runs the subscription and returns the receipts. */
  @WorkflowMethod
  List<String> run(String customer, double periodSeconds);

  /** Returns the receipts so far. */
  @QueryMethod(name = "so_far")
  List<String> soFar();
}
