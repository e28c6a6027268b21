"""ECR: tokens, immutable tags, digests, and image lists that come from the real registry behind it.

With `--registry-backend` the sandbox serves `/v2/` itself: it checks token and repository, refuses to move an immutable tag, and
passes everything else on. Clients then use `--registry HOST:PORT` (this server) and never see the registry behind.
With `--registry-htpasswd` the tokens are also written into an htpasswd file, for a registry that clients reach directly.
"""

from .api import RULES, install

__all__ = ["RULES", "install"]
