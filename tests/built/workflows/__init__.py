"""The workflows of the deployment that tests run: the examples."""

import examples.agent.workflow
import examples.approval.workflow
import examples.briefing.script
import examples.chat.actor
import examples.orders.workflow
import examples.pipeline.streams
import examples.review.stream
import examples.trip.workflow  # noqa: F401
