//! IP networks in CIDR notation: a single address, or a first address and a prefix length.

use std::{fmt, net::IpAddr};

/// An IP network. The order is by first address; of equal ones, the larger network comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// Parses `10.0.0.0/8` or `10.0.0.1`. IPv4-mapped IPv6 networks become IPv4 networks. `None` if it is not a
    /// network.
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

    /// This network with all bits after its prefix cleared.
    #[must_use]
    pub fn without_host_bits(self) -> Self {
        let free = u32::from(width(self.address).saturating_sub(self.length));
        let address = match self.address {
            IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(free).unwrap_or(0)).into()),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(free).unwrap_or(0)).into()),
        };
        Self { address, ..self }
    }

    /// Whether every address of `other` is in this network.
    pub fn contains(self, other: Self) -> bool {
        let around = Self { address: other.address, length: self.length }.without_host_bits();
        self.address.is_ipv4() == other.address.is_ipv4() && self.length <= other.length && around == self
    }

    /// The encoding in a plan: the bytes of the address, followed by the prefix length as one byte.
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

/// Parses decimal digits without a leading zero.
fn prefix_length(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}
