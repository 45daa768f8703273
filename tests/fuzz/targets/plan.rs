//! Loading: any bytes as a plan, and a whole plan with any changes. What loads is run, on every route that it has.

#![cfg_attr(fuzzing, no_main)]

use std::sync::Arc;

use postern_engine::Plan;
use postern_fuzz::{Script, driver, plans};
use postern_proto::plan::v1 as wire;
use prost::Message as _;

postern_fuzz::target!(run: run, seeds: seeds);

/// The first byte says where the plan comes from: from the input itself, behind a script for the run, or from changes.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    if script.flag() {
        let mut plan = plans::whole();
        for _ in 0..script.below(12) {
            plans::edit(&mut plan, &mut script);
        }
        load(&plan.encode_to_vec(), script);
    } else {
        let size = usize::from(script.byte());
        let answers = Script::new(script.bytes(size));
        load(script.rest(), answers);
    }
}

fn load(bytes: &[u8], script: Script<'_>) {
    let plan = match Plan::load(bytes) {
        Ok(plan) => Arc::new(plan),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let wire = wire::Plan::decode(bytes).unwrap_or_default();
    assert_eq!(plan.routes(), wire.routes.len());
    for route in wire.routes.iter().take(16) {
        let name = usize::try_from(route.name).ok().and_then(|name| wire.strings.get(name));
        driver::exchange(&plan, name.map_or("", String::as_str), &mut script.clone());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let plan = plans::whole().encode_to_vec();
    let with = |script: &[u8]| [&[0, u8::try_from(script.len()).unwrap_or_default()], script, &plan].concat();
    let request = b"\0\x05\x01\x02/a?k\x03\x03GET\x04\x02k1\x06\x02me\x07\x01t";
    let edited = |edit: u8| [&[1, 1, edit], &request[..], &[3; 40]].concat();
    [vec![], with(b""), with(request), with(&[7; 200])].into_iter().chain((0..12).map(edited)).collect()
}
