"""A name for an export policy that is the same for equal policies only, so that stages can speak of one.

Owns nothing. The speaker groups neighbors by it, the exporter finds the policy it stands for in its configuration.
"""

import hashlib

from common.config.schema import ExportPolicy


def policy_digest(policy: ExportPolicy | None) -> str:
    """Return the name of a policy; there is one for none, too."""
    return hashlib.sha256(repr(policy).encode()).hexdigest()[:16]
