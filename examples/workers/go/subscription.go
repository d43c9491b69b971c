package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

const months = 12

// Bill charges a customer for a month and returns the receipt.
func Bill(ctx context.Context, customer string, month int) (string, error) {
	if customer == "" {
		return "", temporal.NewNonRetryableApplicationError("the subscription has no customer", "NoCustomer", nil)
	}
	activity.GetLogger(ctx).Info("Billed", "customer", customer, "month", month)
	return fmt.Sprintf("%s paid for month %d", customer, month), nil
}

// SayGoodbye confirms to a customer that the subscription has ended.
func SayGoodbye(_ context.Context, customer string) (string, error) {
	return "goodbye, " + customer, nil
}

// Subscription bills a customer once per period for a year. When it is cancelled, it says goodbye and completes.
// The query "so_far" returns the receipts.
func Subscription(ctx workflow.Context, customer string, periodSeconds float64) ([]string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 30 * time.Second})
	receipts := []string{}
	err := workflow.SetQueryHandler(ctx, "so_far", func() ([]string, error) { return receipts, nil })
	if err != nil {
		return nil, err
	}
	period := time.Duration(periodSeconds * float64(time.Second))
	for month := 1; month <= months && err == nil; month++ {
		var receipt string
		err = workflow.ExecuteActivity(ctx, Bill, customer, month).Get(ctx, &receipt)
		if err == nil {
			receipts = append(receipts, receipt)
			err = workflow.Sleep(ctx, period)
		}
	}
	if err == nil || !temporal.IsCanceledError(err) {
		return receipts, err
	}
	// ctx is cancelled and starts nothing anymore: cleaning up takes a context of its own.
	detached, _ := workflow.NewDisconnectedContext(ctx)
	var goodbye string
	if err := workflow.ExecuteActivity(detached, SayGoodbye, customer).Get(detached, &goodbye); err != nil {
		return receipts, err
	}
	receipts = append(receipts, goodbye)
	return receipts, nil
}
