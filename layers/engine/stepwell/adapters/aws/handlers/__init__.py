"""The logic of the Lambda functions; what stands in `functions/` only binds it to an event."""
