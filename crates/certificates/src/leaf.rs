//! The certificates that an authority signs.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};

use crate::CertificateError;

/// Clocks of others may be behind by so much.
const BACKDATED: SignedDuration = SignedDuration::from_hours(24);

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To be called.
    Server,
    /// To call.
    Client,
    /// To call and to be called by those who do the same.
    Peer,
}

/// A certificate that somebody should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose it is; of a client, the user's name.
    pub name: String,
    /// The groups of a user.
    pub groups: Vec<String>,
    /// The names that a server is reached by.
    pub hosts: Vec<String>,
    /// The addresses that it is reached at.
    pub addresses: Vec<IpAddr>,
    /// What it is for.
    pub used: Use,
}

impl Request {
    /// A server's, that is reached by these names and at these addresses.
    #[must_use]
    pub fn server(name: &str, hosts: &[&str], addresses: &[IpAddr]) -> Self {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        Self { name: name.to_owned(), groups: Vec::new(), hosts, addresses: addresses.to_vec(), used: Use::Server }
    }

    /// A user's, who is in these groups.
    #[must_use]
    pub fn client(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Self { groups, used: Use::Client, ..Self::server(name, &[], &[]) }
    }

    /// As it is signed, for so long from now.
    pub(crate) fn params(&self, now: Timestamp, life: SignedDuration) -> Result<CertificateParams, CertificateError> {
        let Self { name, groups, hosts, addresses, used } = self;
        let mut params = named(name, now, life)?;
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        for host in hosts {
            params.subject_alt_names.push(SanType::DnsName(host.as_str().try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match used {
            Use::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Use::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Use::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        Ok(params)
    }
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
    /// When it was made.
    pub made: Timestamp,
    /// When it is no good any more.
    pub ends: Timestamp,
}

/// A certificate of this name that is good for so long from now.
pub(crate) fn named(name: &str, now: Timestamp, life: SignedDuration) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let at = |moment: Timestamp| {
        let seconds = u64::try_from(moment.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = at(now.saturating_sub(BACKDATED).unwrap_or(now));
    params.not_after = at(now.saturating_add(life).unwrap_or(Timestamp::MAX));
    Ok(params)
}
