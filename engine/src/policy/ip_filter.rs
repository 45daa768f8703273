//! `ipFilter`: admits a caller by its address.
//!
//! A list has sorted ranges that do not overlap, so that a lookup among ten thousand costs about as much as among ten.
//! IPv4 and IPv6 are separate: `::/0` is every IPv6 address and no IPv4 address.

use std::net::IpAddr;

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known, failure};
use crate::{
    event::{Needs, Phase, Property},
    load_error::LoadError,
    schema::{Ending, Field, Kind, Object, PolicySchema, Range},
    text::ip,
    verdict::{Denial, Response},
};

const FORWARDED_FOR: &str = "x-forwarded-for";
const CIDRS: Kind = Kind::List { item: &Kind::Cidr, at_least: 1 };

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "ipFilter",
    about: "Admits or refuses a caller by its address. `deny` wins; with `allow`, every other address is refused. \
            IPv4 addresses that are mapped into IPv6 count as IPv4. `trustedHops` counts the proxies in front of this \
            Envoy, whose connection manager must have `use_remote_address: true` (Postern's listeners do). Where Envoy \
            itself takes the address from X-Forwarded-For (`http.trustedHops` of a Gateway, `xff_num_trusted_hops`), leave \
            it at 0: the same proxies would be counted twice, and the step fails.",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("allow", CIDRS, "The addresses and networks that are admitted."),
            Field::optional("deny", CIDRS, "The addresses and networks that are refused, whatever `allow` says."),
            Field::optional(
                "trustedHops",
                Kind::Integer { min: 0, max: 16 },
                "How many proxies in front of this one are trusted: 0 takes the peer's own address, and n the address \
                 that the n-th proxy, counted from here, saw and put into X-Forwarded-For.",
            )
            .or("0"),
        ],
        exactly_one_of: &[],
    },
    endings: &[
        Ending { status: "403", reason: "address_denied", when: "the address is in `deny`" },
        Ending { status: "403", reason: "address_not_allowed", when: "the address is not in `allow`" },
        Ending {
            status: "403",
            reason: "forwarded_for_invalid",
            when: "X-Forwarded-For has too few entries, or none but garbage where the address should be",
        },
        Ending { status: "500", reason: "address_unknown", when: "the peer has no IP address (a failure)" },
        Ending {
            status: "500",
            reason: "forwarded_for_unclear",
            when: "Envoy has not put the peer's address into X-Forwarded-For, so hops cannot be counted (a failure)",
        },
    ],
    example: "\
- policy: ipFilter
  params:
    allow: [127.0.0.0/8, 10.0.0.0/8, '2001:db8::/32']
    deny: [10.0.0.66]
",
};

const TRUSTED_HOPS: Range = SCHEMA.params.range("trustedHops");

/// The loaded step.
#[derive(Debug)]
pub(crate) struct IpFilter {
    /// The networks that are admitted; `None` for all.
    allow: Option<Networks>,
    deny: Networks,
    trusted_hops: usize,
}

impl BuiltIn for IpFilter {
    type Wire = wire::IpFilter;
    type State = ();

    fn load(wire: &wire::IpFilter, _: Known<'_>) -> Result<Self, LoadError> {
        let trusted_hops = TRUSTED_HOPS.check("trusted_hops", wire.trusted_hops)?;
        if wire.allow.is_empty() && wire.deny.is_empty() {
            return Err(LoadError::Missing("allow"));
        }
        let allow = (!wire.allow.is_empty()).then(|| Networks::load(&wire.allow)).transpose()?;
        let trusted_hops = usize::try_from(trusted_hops).unwrap_or_default();
        Ok(Self { allow, deny: Networks::load(&wire.deny)?, trusted_hops })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::of(Property::SourceAddress).union(Needs::REQUEST_HEADERS.when(self.trusted_hops > 0))
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let Some(peer) = context.inputs.property(Property::SourceAddress).and_then(ip::address) else {
            return Flow::Fail(failure("address_unknown"));
        };
        let address = match self.trusted_hops {
            0 => peer,
            hops => match forwarded(context, peer, hops) {
                Ok(address) => address,
                Err(flow) => return flow,
            },
        };
        if self.deny.contains(address) {
            return Flow::Deny(forbidden("address_denied"));
        }
        match &self.allow {
            Some(allow) if !allow.contains(address) => Flow::Deny(forbidden("address_not_allowed")),
            _ => Flow::Continue,
        }
    }
}

/// The entry of X-Forwarded-For that is `hops` before the last one, which Envoy wrote for the peer. The header is read
/// as it came, without the edits of earlier steps. A caller that goes around the proxies, or lies to them, is refused;
/// it is not a failure, since `onFailure: continue` would let exactly such callers pass.
fn forwarded(context: &Context<'_>, peer: IpAddr, hops: usize) -> Result<IpAddr, Flow> {
    let values: Vec<_> = context.inputs.request_headers.values(FORWARDED_FOR).collect();
    let mut entries = values.iter().rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
    // For a loopback peer Envoy writes its node's own address.
    let last = entries.next().and_then(|entry| ip::address(entry.trim_ascii()));
    if last.is_none_or(|last| last != peer && !peer.is_loopback()) {
        return Err(Flow::Fail(failure("forwarded_for_unclear")));
    }
    let entry = entries.nth(hops.saturating_sub(1));
    let address = entry.and_then(|entry| ip::address(entry.trim_ascii()));
    address.ok_or_else(|| Flow::Deny(forbidden("forwarded_for_invalid")))
}

fn forbidden(reason: &'static str) -> Denial {
    Denial { reason, response: Response::problem(403, "this address is not admitted") }
}

/// A set of addresses, as sorted ranges that do not overlap.
#[derive(Debug, Default)]
struct Networks {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    fn load(wire: &[Vec<u8>]) -> Result<Self, LoadError> {
        let mut networks = Self::default();
        for network in wire {
            networks.add(network).ok_or(LoadError::Network { size: network.len() })?;
        }
        Ok(networks)
    }

    /// Adds a network: an address, followed by the length of its prefix in one byte. `None` if it is malformed or not
    /// behind those before it: a plan has them sorted, so that loading takes one pass.
    fn add(&mut self, wire: &[u8]) -> Option<()> {
        let (length, address) = wire.split_last()?;
        let (ranges, width, first) = match address.len() {
            4 => (&mut self.v4, 32, u32::from_be_bytes(address.try_into().ok()?).into()),
            _ => (&mut self.v6, 128, u128::from_be_bytes(address.try_into().ok()?)),
        };
        let free = u32::checked_sub(width, (*length).into())?;
        let host = u128::MAX.checked_shr(u32::checked_sub(128, free)?).unwrap_or_default();
        let apart = ranges.last().is_none_or(|(_, last)| *last < first);
        (apart && first & host == 0).then(|| ranges.push((first, first | host)))
    }

    fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => within(&self.v4, address.to_bits().into()),
            IpAddr::V6(address) => within(&self.v6, address.to_bits()),
        }
    }
}

fn within(ranges: &[(u128, u128)], address: u128) -> bool {
    let before = ranges.partition_point(|(_, last)| *last < address);
    ranges.get(before).is_some_and(|(first, _)| *first <= address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        let wire = |text: &&str| {
            let (address, length) = text.split_once('/').unwrap();
            let mut bytes = match address.parse().unwrap() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            bytes.push(length.parse().unwrap());
            bytes
        };
        Networks::load(&texts.iter().map(wire).collect::<Vec<_>>()).unwrap()
    }

    fn check(networks: &Networks, inside: &[&str], outside: &[&str]) {
        for address in inside {
            assert!(networks.contains(address.parse().unwrap()), "{address}");
        }
        for address in outside {
            assert!(!networks.contains(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn knows_the_edges_of_networks() {
        check(
            &networks(&["10.0.0.0/8", "192.168.1.7/32", "::1/128", "2001:db8::/32"]),
            &[
                "10.0.0.0",
                "10.255.255.255",
                "192.168.1.7",
                "2001:db8::",
                "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                "::1",
            ],
            &["9.255.255.255", "11.0.0.0", "192.168.1.6", "192.168.1.8", "2001:db9::", "::", "::2"],
        );
    }

    #[test]
    fn keeps_the_families_apart() {
        check(&networks(&["0.0.0.0/0"]), &["0.0.0.0", "255.255.255.255"], &["::", "::1"]);
        check(&networks(&["::/0"]), &["::", "ffff::"], &["1.2.3.4"]);
    }

    #[test]
    fn looks_ten_thousand_up_as_it_does_ten() {
        let wire = |index: u32| [(index << 12).to_be_bytes().as_slice(), &[24]].concat();
        let many = Networks::load(&(0..10_000).map(wire).collect::<Vec<_>>()).unwrap();
        for index in [0_u32, 1, 5_000, 9_999] {
            assert!(many.contains(std::net::Ipv4Addr::from((index << 12) | 7).into()));
            assert!(!many.contains(std::net::Ipv4Addr::from((index << 12) | 0x800).into()));
        }
    }

    #[test]
    fn refuses_what_is_no_network() {
        let load = |wire: &[&[u8]]| Networks::load(&wire.iter().map(|wire| wire.to_vec()).collect::<Vec<_>>());
        assert!(load(&[&[10, 0, 0, 0, 8], &[11, 0, 0, 0, 8]]).is_ok());
        assert!(load(&[&[11, 0, 0, 0, 8], &[10, 0, 0, 0, 8]]).is_err());
        assert!(load(&[&[10, 0, 0, 0, 8], &[10, 1, 0, 0, 16]]).is_err());
        for wire in [&b""[..], b"\0", &[10, 0, 0, 0, 33], &[10, 0, 0, 1, 8], &[0; 6], &[1; 17]] {
            assert!(Networks::load(&[wire.to_vec()]).is_err(), "{wire:?}");
        }
    }
}
