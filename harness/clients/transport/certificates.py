"""What a client shows and trusts over TLS, and why it failed or a certificate was refused: a clause with what to do, over
HTTPS and gRPC.

Codes are OpenSSL's (``X509_V_ERR_…`` of x509_vfy.h), words those of gRPC's BoringSSL.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import suppress
from pathlib import Path

from harness.errors import TargetError

CLIENT_CERTIFICATE = "SSL_CLIENT_CERT_FILE"
"""The environment variable that names a PEM file with the client's certificate, those that signed it, and its key."""

_OWN = f"a PEM file with the client's certificate and its key in the environment variable {CLIENT_CERTIFICATE}"
_ABOUT_A_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
_CLOSED = "the server closed the encrypted connection"
_REQUIRED = f"the server requires a client's certificate; name {_OWN}"
_NOT_TAKEN = f"the server does not accept the client's certificate that the environment variable {CLIENT_CERTIFICATE} names"
BY_ENVIRONMENT = "a file with it or its authority in the environment variable SSL_CERT_FILE"
BY_OPTION = "a file with it or its authority with --root_certificates"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # the second by OpenSSL from 3.2 on
_UNENCRYPTED = (
    "the server does not speak TLS at this port; give --url http://host:port, over gRPC host:port, or a port with TLS"
)
_OTHER_NAME = "the server's certificate is for another name; give --url the name or address that it was made for"
_EXPIRED = "the server's certificate has expired, or this machine's clock is wrong; the server needs a new certificate"
_EARLY = "the server's certificate is not valid yet: compare this machine's clock with the server's"
_BY_CODE = {9: _EARLY, 10: _EXPIRED, 62: _OTHER_NAME, 64: _OTHER_NAME}
_BY_WORDS = {
    "certificate has expired": _EXPIRED,
    "certificate is not yet valid": _EARLY,
    "Hostname Verification Check failed": _OTHER_NAME,
    "is not in peer certificate": _OTHER_NAME,  # of gRPC before 1.60
}
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")  # a file name in OpenSSL's folders of certificates
_REFUSED = "CERTIFICATE_VERIFY_FAILED: "


def client_context() -> ssl.SSLContext:
    """A context that trusts what the system trusts, and shows the client's certificate. Raises TargetError where the file that
    ``CLIENT_CERTIFICATE`` names has none.
    """
    context = ssl.create_default_context()
    own = os.environ.get(CLIENT_CERTIFICATE)
    if own:
        try:
            context.load_cert_chain(own, password=bytes)  # no question for the password of an encrypted key
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise TargetError(
                f"{CLIENT_CERTIFICATE} {own}: no PEM file with a certificate and its key, without a password ({error})"
            ) from error
    return context


def client_pem() -> bytes | None:
    """The file that ``CLIENT_CERTIFICATE`` names; None without one. Raises TargetError as ``client_context``."""
    own = os.environ.get(CLIENT_CERTIFICATE)
    if not own:
        return None
    client_context()
    return Path(own).read_bytes()


def closed_problem() -> str:
    """That the server closed the connection without an answer, as it may do where it does not accept the client."""
    if os.environ.get(CLIENT_CERTIFICATE):
        return f"{_CLOSED}; does it accept the client's certificate that the environment variable {CLIENT_CERTIFICATE} names?"
    return f"{_CLOSED}; where it requires a client's certificate, name {_OWN}"


def refused_client(error: BaseException | None) -> str | None:
    """That the server wants a certificate of the client, or another one, by an error of an encrypted connection; None where the
    error does not say so. A server that closes it may end its words, too.
    """
    if isinstance(error, (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError)):
        return closed_problem()
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if "CERTIFICATE_REQUIRED" in reason:
        return _REQUIRED
    if "HANDSHAKE_FAILURE" in reason:  # TLS 1.2 says no more, and so do servers of other ciphers
        return closed_problem()
    is_about_it = "ALERT" in reason and any(words in reason for words in _ABOUT_A_CERTIFICATE)
    return _NOT_TAKEN if is_about_it and os.environ.get(CLIENT_CERTIFICATE) else None


def unencrypted_problem(words: str) -> str | None:
    """That the server does not speak TLS, by the words of OpenSSL or BoringSSL; None where they do not say so."""
    return _UNENCRYPTED if any(reason in words for reason in _NO_TLS) else None


def https_problem(error: ssl.SSLCertVerificationError) -> str:
    """The problem by an error of Python's ``ssl``."""
    return _BY_CODE.get(error.verify_code) or _untrusted(error.verify_message, BY_ENVIRONMENT)


def grpc_problem(details: str, trust: str) -> str | None:
    """The problem by the details of a failed call of gRPC; None where it was no certificate.

    ``trust`` is how a certificate can be trusted: ``BY_ENVIRONMENT`` or ``BY_OPTION``.
    """
    found = next((problem for words, problem in _BY_WORDS.items() if words in details), None)
    if found is None and _REFUSED in details:
        return _untrusted(details.rpartition(_REFUSED)[2].removesuffix(": OK"), trust)
    return found


def trusted_roots() -> bytes | None:
    """What Python's ``ssl`` trusts by default, in PEM; None where it finds nothing. gRPC by itself would read other files."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    folders = os.environ.get(paths.openssl_capath_env, paths.capath or "").split(os.pathsep)
    for folder in filter(None, folders):
        with suppress(OSError):
            files += sorted(file for file in Path(folder).iterdir() if _HASHED.fullmatch(file.name))
    found = []
    for file in files:
        with suppress(OSError):  # as OpenSSL skips the link to a certificate that was removed
            found.append(file.read_bytes())
    return b"\n".join(found) or None


def _untrusted(reason: str, file: str) -> str:
    return f"the server's certificate is not trusted ({reason}); where you trust it, name {file}"
