"""The RPCs, by what they are about. A method ``list_workflow_executions`` serves ``ListWorkflowExecutions``."""
