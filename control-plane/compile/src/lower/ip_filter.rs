//! Lowers `ipFilter`: encodes networks.

use postern_model::cidr::Cidr;
use postern_proto::plan::v1::{IpFilter, step::Policy};

use super::{Lowering, policies::LowerError};
use crate::params::IpFilterParams;

impl Lowering {
    pub(super) fn ip_filter(&mut self, params: &IpFilterParams) -> Result<Policy, LowerError> {
        if params.allow.is_empty() && params.deny.is_empty() {
            return Err(LowerError::Value("expected `allow` or `deny`: without them everyone is admitted"));
        }
        Ok(Policy::IpFilter(IpFilter {
            allow: sorted(&params.allow),
            deny: sorted(&params.deny),
            trusted_hops: params.trusted_hops,
        }))
    }
}

/// The encoded networks, sorted, without networks that are inside of others.
fn sorted(texts: &[String]) -> Vec<Vec<u8>> {
    let mut networks: Vec<_> = texts.iter().filter_map(|text| Cidr::parse(text)).collect();
    networks.sort_unstable();
    networks.dedup_by(|inner, outer| outer.contains(*inner));
    networks.into_iter().map(Cidr::to_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_networks_and_drops_those_in_others() {
        let texts = ["10.1.0.0/16", "::1", "10.0.0.0/8", "10.1.2.3", "12.0.0.0/8", "9.0.0.0/9", "10.0.0.0/8", "::/64"];
        let expect = ["9.0.0.0/9", "10.0.0.0/8", "12.0.0.0/8", "::/64"];
        let bytes = expect.map(|text| Cidr::parse(text).unwrap().to_bytes());
        assert_eq!(sorted(&texts.map(str::to_owned)), bytes);
    }
}
