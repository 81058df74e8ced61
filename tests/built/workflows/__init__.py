"""The workflows of the deployment that tests run: the examples."""

import examples.agent.workflow
import examples.approval.workflow  # noqa: F401
