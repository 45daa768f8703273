//! Networks as users write them: an IP address, or the first one of a network and the length of its prefix.

use std::{fmt, net::IpAddr};

/// A network. They sort by their first address, and larger ones before those that they contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8` or `10.0.0.1`. A network of IPv4 addresses that are mapped into IPv6 is one of IPv4.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            None => (text.parse::<IpAddr>().ok()?, None),
            Some((address, length)) => (address.parse().ok()?, Some(prefix_length(length)?)),
        };
        let width = width(address);
        let length = length.unwrap_or(width);
        if length > width {
            return None;
        }
        match address.to_canonical() {
            IpAddr::V4(mapped) if address.is_ipv6() && length >= 96 => {
                Some(Self { address: mapped.into(), length: length.saturating_sub(96) })
            }
            _ => Some(Self { address, length }),
        }
    }

    /// The same with all bits past its prefix cleared.
    #[must_use]
    pub fn without_host_bits(self) -> Self {
        let free = u32::from(width(self.address).saturating_sub(self.length));
        let address = match self.address {
            IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(free).unwrap_or(0)).into()),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(free).unwrap_or(0)).into()),
        };
        Self { address, ..self }
    }

    /// Whether every address of another network is one of this.
    pub fn contains(self, other: Self) -> bool {
        let around = Self { address: other.address, length: self.length }.without_host_bits();
        self.address.is_ipv4() == other.address.is_ipv4() && self.length <= other.length && around == self
    }

    /// As plans have it: the address, and the length of the prefix in one more byte.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = match self.address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        bytes.push(self.length);
        bytes
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Digits alone, without a zero in front of others.
fn prefix_length(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}
