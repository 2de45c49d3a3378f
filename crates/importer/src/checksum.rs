//! Checksums that users name, in the form of `algorithm:digits`.

use std::fmt;
use std::str::FromStr;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// What content hashes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checksum {
    algorithm: Algorithm,
    digits: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

const ALL: [(&str, usize, Algorithm); 4] = [
    ("md5", 32, Algorithm::Md5),
    ("sha1", 40, Algorithm::Sha1),
    ("sha256", 64, Algorithm::Sha256),
    ("sha512", 128, Algorithm::Sha512),
];

/// A text that is not a checksum.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a valid checksum; use md5:, sha1:, sha256: or sha512: and the hexadecimal digits")]
pub struct ChecksumError(String);

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ChecksumError(text.chars().take(200).collect());
        let (name, digits) = text.split_once(':').ok_or_else(refuse)?;
        let name = name.to_ascii_lowercase();
        let (_, length, algorithm) = ALL.iter().find(|(known, ..)| *known == name).ok_or_else(refuse)?;
        let fits = digits.len() == *length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !fits {
            return Err(refuse());
        }
        Ok(Self { algorithm: *algorithm, digits: digits.to_ascii_lowercase() })
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ALL.iter().find(|(.., algorithm)| *algorithm == self.algorithm).map_or("", |(name, ..)| name);
        write!(f, "{name}:{}", self.digits)
    }
}

impl Checksum {
    pub(crate) fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Md5 => Hasher::Md5(Md5::new()),
            Algorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(Box::new(Sha512::new())),
        }
    }
}

/// Hashes while content arrives.
pub(crate) enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Checksum {
        match self {
            Self::Md5(hasher) => Checksum { algorithm: Algorithm::Md5, digits: hex(&hasher.finalize()) },
            Self::Sha1(hasher) => Checksum { algorithm: Algorithm::Sha1, digits: hex(&hasher.finalize()) },
            Self::Sha256(hasher) => Checksum { algorithm: Algorithm::Sha256, digits: hex(&hasher.finalize()) },
            Self::Sha512(hasher) => Checksum { algorithm: Algorithm::Sha512, digits: hex(&hasher.finalize()) },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_algorithms_hash_as_everybody_elses() {
        let known = [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ];
        for text in known {
            let expected: Checksum = text.parse().unwrap();
            let mut hasher = expected.hasher();
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish(), expected);
            assert_eq!(expected.to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_checksum_is_refused() {
        for text in ["", "sha256", "sha256:", "sha256:ab", "crc32:00000000", "md5:900150983cd24fb0d6963f7d28e17f7g"] {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
        assert!("SHA256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD".parse::<Checksum>().is_ok());
    }
}
