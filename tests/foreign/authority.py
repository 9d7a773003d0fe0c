"""A private authority for tests, by nothing but openssl."""

import subprocess


def openssl(*arguments, cwd):
    done = subprocess.run(["openssl", *arguments], cwd=cwd, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """Signs certificates for names of its choice, beside itself in a folder."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        openssl(
            "req", "-x509", *EC, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}",
            cwd=folder,
        )  # fmt: skip
        self.pem = folder / f"{name}.pem"

    def sign(self, name, *others, usages=()):
        """Certificate and key for a name, and for others beside it; `usages` as cert-manager has them, none: for all."""
        names = ",".join(f"DNS:{each}" for each in (name, *others))
        openssl("req", *EC, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=self.folder)
        extended = ",".join({"server auth": "serverAuth", "client auth": "clientAuth"}[usage] for usage in usages)
        extensions = [f"subjectAltName={names},IP:127.0.0.1", *([f"extendedKeyUsage={extended}"] if extended else [])]
        (self.folder / f"{name}.ext").write_text("\n".join(extensions) + "\n")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key",
            "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", f"{name}.ext", cwd=self.folder,
        )  # fmt: skip
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"
