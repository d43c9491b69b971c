"""The RPCs by topic. A method ``list_workflow_executions`` serves ``ListWorkflowExecutions``."""
