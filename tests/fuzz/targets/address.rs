//! Addresses: any networks, any peer and any X-Forwarded-For. Who passes is who a second, simpler reading lets pass.

#![cfg_attr(fuzzing, no_main)]

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use postern_engine::{Plan, Verdict};
use postern_fuzz::{
    Script,
    common::{Driver, Writer},
    cost, decision,
};
use postern_proto::plan::v1::{self as wire, step::Policy};
use prost::Message as _;

postern_fuzz::target!(run: run, seeds: seeds);

/// Networks, then hops and the peer, then X-Forwarded-For.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let (allow, deny) = (networks(&mut script), networks(&mut script));
    let hops = script.below(4);
    let peer = script.chunk().to_vec();
    let forwarded = script.rest().to_vec();
    let mut writer = Writer::new();
    let trusted_hops = u32::try_from(hops).unwrap_or_default();
    let policy = wire::IpFilter { allow: allow.clone(), deny: deny.clone(), trusted_hops };
    let step = writer.step("ipFilter", Policy::IpFilter(policy));
    writer.route("r", vec![step], vec![]);
    let Ok(plan) = Plan::load(&writer.plan.encode_to_vec()) else { return };
    let mut driver = Driver { headers: vec![("x-forwarded-for".to_owned(), forwarded.clone())], ..Driver::default() };
    driver.properties.insert("source.address", peer.clone());
    let plan = Arc::new(plan);
    cost::start();
    let Some(decided) = driver.run(&plan, "r") else { return };
    cost::check(1, plan.steps(), 0);
    decision::check(&decided);
    let caller = caller(&peer, &forwarded, hops);
    let expected = caller.is_some_and(|caller| {
        let listed = |list: &[Vec<u8>]| list.iter().any(|network| is_in(caller, network));
        !listed(&deny) && (allow.is_empty() || listed(&allow))
    });
    assert_eq!(matches!(decided.verdict, Verdict::Continue(_)), expected, "{caller:?} of {peer:?}, {forwarded:?}");
}

fn networks(script: &mut Script<'_>) -> Vec<Vec<u8>> {
    let size = |script: &mut Script<'_>| if script.flag() { 17 } else { 5 };
    (0..script.below(4)).map(|_| script.bytes(size(&mut script.clone())).to_vec()).collect()
}

fn caller(peer: &[u8], forwarded: &[u8], hops: usize) -> Option<IpAddr> {
    let peer = read(str::from_utf8(peer).ok()?)?;
    if hops == 0 {
        return Some(peer);
    }
    let mut entries: Vec<_> = forwarded.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let entry = |entry: &[u8]| read(str::from_utf8(entry).ok()?);
    let last = entry(entries.pop()?)?;
    if last != peer && !peer.is_loopback() {
        return None;
    }
    entry(entries.get(entries.len().checked_sub(hops)?)?)
}

/// The standard library knows addresses alone, and with a port; a zone it knows as a number only.
fn read(text: &str) -> Option<IpAddr> {
    let zone = text.split_once('%');
    let text = match zone {
        None => text.to_owned(),
        Some((before, after)) => {
            let word = |name: &&str| {
                !name.is_empty() && !name.contains(|c: char| !c.is_ascii_alphanumeric() && !"-._~".contains(c))
            };
            let name = after.split(']').next().filter(word)?;
            if !before.contains(':') || (before.starts_with('[') && !after.contains(']')) {
                return None;
            }
            if !before.starts_with('[') {
                if name != after {
                    return None;
                }
                return before.parse::<std::net::Ipv6Addr>().ok().map(|ip| IpAddr::V6(ip).to_canonical());
            }
            [before, after.strip_prefix(name)?].concat()
        }
    };
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let bare = bare.and_then(|text| text.parse().ok()).map(IpAddr::V6);
    let ip = text.parse().ok().or(bare).or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()));
    ip.map(|ip: IpAddr| ip.to_canonical())
}

fn is_in(address: IpAddr, network: &[u8]) -> bool {
    let Some((length, network)) = network.split_last() else { return false };
    let address = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let bit = |bytes: &[u8], at: usize| bytes.get(at / 8).map(|byte| byte >> (7 - at % 8) & 1);
    address.len() == network.len() && (0..usize::from(*length)).all(|at| bit(&address, at) == bit(network, at))
}

fn seeds() -> Vec<Vec<u8>> {
    let ten: &[u8] = &[1, 0, 10, 0, 0, 0, 8];
    let with = |lists: &[u8], hops: u8, peer: &[u8], forwarded: &[u8]| {
        [lists, &[hops, u8::try_from(peer.len()).unwrap_or_default()], peer, forwarded].concat()
    };
    // `networks` looks at a flag without taking it, so that the first byte of an address is its flag.
    let both = [&[1, 10, 0, 0, 0, 8][..], &[1, 10, 0, 0, 66, 32]].concat();
    let six = [&[0, 1, 0x21][..], &[0; 15], &[8]].concat();
    vec![
        vec![],
        with(ten, 0, b"10.0.0.1:80", b""),
        with(&both, 0, b"10.0.0.66:80", b""),
        with(&both, 1, b"127.0.0.1:80", b"10.0.0.1, 1.2.3.4"),
        with(&both, 2, b"127.0.0.1:80", b"[::ffff:10.0.0.1]:80, x,1.2.3.4"),
        with(&six, 1, b"[::1]:80", b"2100::1%eth0,::1"),
        with(&six, 0, b"[2100::1%3]:80", b""),
        with(&[0, 0], 1, b"0::1%e", b"[::%p],::1%]/"),
    ]
}
