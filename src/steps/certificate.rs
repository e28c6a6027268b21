//! Certificate and key for the gateway, read and held against each other before anything is made: nginx would only crash over them.

use std::path::Path;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::secret::Secret;

/// A certificate with its chain and the key that belongs to it, as PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: Secret,
    /// The first certificate is valid until then.
    pub until: Timestamp,
}

impl Pair {
    /// Reads both files; an error says which of them cannot be used and why, never what is in it.
    pub fn read(folder: &Path, certificate: &str, key: &str, now: Timestamp) -> Result<Self, String> {
        let read = |file: &str| {
            let bytes = std::fs::read(folder.join(file)).map_err(|error| format!("{file} cannot be read: {error}"))?;
            String::from_utf8(bytes).map_err(|_| format!("{file} is no PEM but binary: openssl x509 (or pkey) -inform der -in {file} writes PEM"))
        };
        Self::checked((certificate, read(certificate)?), (key, Secret::new(read(key)?)), now)
    }

    /// The pair of these files, by name and text, if it can be used at that time.
    pub fn checked((file, certificate): (&str, String), (key_file, key): (&str, Secret), now: Timestamp) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| format!("{file} is no whole PEM: a certificate in it is cut off or damaged"))?;
        let first = chain.first().ok_or_else(|| format!("{file} has no certificate in PEM"))?;
        if key.reveal().contains("ENCRYPTED") {
            return Err(format!("{key_file} has a password, which nginx has not: openssl pkey -in {key_file} -out FILE writes it without"));
        }
        let Some(private) = PrivateKeyDer::pem_slice_iter(key.reveal().as_bytes()).next() else { return Err(format!("{key_file} has no private key in PEM")) };
        let private = private.map_err(|_| format!("{key_file} is no whole PEM: the private key in it is cut off or damaged"))?;
        let signing = any_supported_type(&private).map_err(|_| format!("{key_file} is no private key that can be used: RSA of 2048 bits or more, ECDSA or Ed25519"))?;
        let Signed { from, until, public_key } = Signed::of(first).ok_or_else(|| format!("{file}: the first certificate is cut off or no X.509 certificate"))?;
        if signing.public_key().is_some_and(|of_key| of_key.as_ref() != public_key) {
            return Err(format!("{key_file} does not belong to the first certificate of {file}"));
        }
        if until <= now {
            return Err(format!("the certificate of {file} expired on {until}"));
        }
        if now < from {
            return Err(format!("the certificate of {file} is not valid before {from}"));
        }
        Ok(Self { certificate, key, until })
    }

    /// How long it is still valid, for the plan.
    pub fn validity(&self, now: Timestamp) -> String {
        let days = self.until.duration_since(now).as_hours() / 24;
        format!("the TLS certificate is valid until {}, which is {days} days", self.until)
    }
}

/// What is needed of a certificate (RFC 5280, 4.1).
struct Signed<'a> {
    from: Timestamp,
    until: Timestamp,
    /// The SubjectPublicKeyInfo, as it is encoded.
    public_key: &'a [u8],
}

impl<'a> Signed<'a> {
    fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let whole = Value::first(certificate)?;
        let mut fields = Value::first(whole.content)?.content;
        let mut next = || {
            let value = Value::first(fields)?;
            fields = value.rest;
            Some(value)
        };
        // A version may come before serial number, algorithm and issuer.
        if next()?.tag == 0xa0 {
            next()?;
        }
        next()?;
        next()?;
        let validity = next()?;
        next()?;
        let public_key = next()?.whole;
        let from = Value::first(validity.content)?;
        let until = Value::first(from.rest)?;
        (whole.tag == 0x30 && whole.rest.is_empty()).then_some(Self { from: from.time()?, until: until.time()?, public_key })
    }
}

/// One value of DER.
struct Value<'a> {
    tag: u8,
    whole: &'a [u8],
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Value<'a> {
    fn first(der: &'a [u8]) -> Option<Self> {
        let (&tag, &length) = (der.first()?, der.get(1)?);
        let (header, length) = if length < 0x80 {
            (2, usize::from(length))
        } else {
            // More than three bytes of length are no certificate's.
            let bytes = usize::from(length & 0x7f);
            let digits = der.get(2..2 + bytes).filter(|digits| digits.len() <= 3)?;
            (2 + bytes, digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
        };
        let whole = der.get(..header + length)?;
        Some(Self { tag, whole, content: &whole[header..], rest: &der[header + length..] })
    }

    /// UTCTime, whose years are 1950 to 2049, or GeneralizedTime.
    fn time(&self) -> Option<Timestamp> {
        let text = std::str::from_utf8(self.content).ok().filter(|text| text.is_ascii())?;
        let full = match self.tag {
            0x17 if text.get(..2)? < "50" => format!("20{text}"),
            0x17 => format!("19{text}"),
            0x18 => text.to_owned(),
            _ => return None,
        };
        // The year that stands for "never".
        if full.starts_with("9999") {
            return Some(Timestamp::MAX);
        }
        let at = |from: usize| full.get(from..from + 2);
        format!("{}-{}-{}T{}:{}:{}Z", full.get(..4)?, at(4)?, at(6)?, at(8)?, at(10)?, at(12)?).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 36500, from 2026-12-01 to 2126-11-07.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUL3VYzeAZVBu0UDVg6TBllh0cIcowCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEbmVtbzAgFw0yNjEyMDExMDU0MjNaGA8yMTI2MTEwNzEwNTQy
M1owDzENMAsGA1UEAwwEbmVtbzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMG/
TAJ+/OhIDkp+dVCZ3u9qTRSApo9WqsDCRKqSlyluHih/yiO+tZqUhnxfb2KQJKrE
M6oIul8F8CvozMpCAo6jUzBRMB0GA1UdDgQWBBTfYdwsb6KdfcODIAsEgKVTTYD3
FjAfBgNVHSMEGDAWgBTfYdwsb6KdfcODIAsEgKVTTYD3FjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQDteiTYvGT9lkfH1ZgZzSJqaiBDqWpLgvAt
07fwb3Hy3wIhAO4qaFMGdtCQwUWZ5RvykYztIE46zwRerSdOs6Os+ZbM
-----END CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGp+QwT63kt5mQc90
AEKT7m1Mdidgq6h3yeB8BCLV9vGhRANCAATBv0wCfvzoSA5KfnVQmd7vak0UgKaP
VqrAwkSqkpcpbh4of8ojvrWalIZ8X29ikCSqxDOqCLpfBfAr6MzKQgKO
-----END PRIVATE KEY-----";
    const ANOTHER: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBqWiz0ksTA6eA/vU
S//urkwrtM2FUmhchN/VBCnWNROhRANCAARfkAzuThF8YJK6Hk/8cGRqaaYgKvxU
6hNYwAEM5jKhIjujNJYqM9Npsqck9Mzex7rLP8vkTh1JC+JWIz7Q8/AZ
-----END PRIVATE KEY-----";

    fn checked(certificate: &str, key: &str, now: &str) -> Result<Pair, String> {
        Pair::checked(("tls.crt", certificate.into()), ("tls.key", Secret::new(key)), now.parse().unwrap())
    }

    #[test]
    fn a_pair_is_taken_with_its_time() {
        let pair = checked(CERTIFICATE, KEY, "2126-10-28T10:54:23Z").unwrap();
        assert_eq!(pair.validity("2126-10-28T10:54:23Z".parse().unwrap()), "the TLS certificate is valid until 2126-11-07T10:54:23Z, which is 10 days");
        let chain = format!("subject=/CN=nemo\n{CERTIFICATE}\n{CERTIFICATE}\n");
        assert!(checked(&chain, &format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{KEY}"), "2027-01-01T00:00:00Z").is_ok());
    }

    #[test]
    fn what_nginx_would_crash_over_is_refused_unseen() {
        let (now, cut) = ("2027-01-01T00:00:00Z", |text: &str| text[..text.len() - 60].to_owned());
        let short = CERTIFICATE.lines().enumerate().filter(|(n, _)| *n != 5).map(|(_, line)| format!("{line}\n")).collect::<String>();
        let cases: [(&str, &str, &str, &str); 12] = [
            (CERTIFICATE, ANOTHER, now, "tls.key does not belong to the first certificate of tls.crt"),
            (&cut(CERTIFICATE), KEY, now, "tls.crt is no whole PEM"),
            (&format!("{CERTIFICATE}\n{}", cut(CERTIFICATE)), KEY, now, "tls.crt is no whole PEM"),
            (&short, KEY, now, "no X.509 certificate"),
            (KEY, KEY, now, "tls.crt has no certificate"),
            ("", KEY, now, "tls.crt has no certificate"),
            (CERTIFICATE, &cut(KEY), now, "tls.key is no whole PEM"),
            (CERTIFICATE, CERTIFICATE, now, "tls.key has no private key"),
            (CERTIFICATE, &KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"), now, "tls.key has a password"),
            (CERTIFICATE, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", now, "no private key that can be used"),
            (CERTIFICATE, KEY, "2126-11-07T10:54:23Z", "expired on 2126-11-07T10:54:23Z"),
            (CERTIFICATE, KEY, "2026-11-30T00:00:00Z", "is not valid before 2026-12-01"),
        ];
        for (certificate, key, now, words) in cases {
            let why = checked(certificate, key, now).unwrap_err();
            assert!(why.contains(words), "{words}: {why}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tls.crt"), [0x30, 0x82, 0xff]).unwrap();
        let read = |file: &str| Pair::read(folder.path(), file, "tls.key", now.parse().unwrap()).unwrap_err();
        assert!(read("tls.crt").contains("no PEM but binary") && read("nosuch.pem").starts_with("nosuch.pem cannot be read"));
    }
}
