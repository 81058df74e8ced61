"""AWS: the ports on DynamoDB, SQS, EventBridge Scheduler and S3."""
