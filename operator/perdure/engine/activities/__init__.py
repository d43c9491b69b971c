"""Open activities during a step: process the reports of workers, pods and clients about their attempts."""
