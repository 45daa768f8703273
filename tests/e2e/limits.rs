//! A rate limit on two Envoy workers under load, across an update of the plan. It must let through what one exact
//! bucket would.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use postern_tests::wait;

use crate::world::{KEY, World, users_with};

const RATE: f64 = 100.0;
const BURST: f64 = 10.0;
const CONNECTIONS: usize = 8;

/// One request. It was decided at some time between these two.
struct Sample {
    sent: Instant,
    answered: Instant,
    passed: bool,
}

/// Sends requests continuously until stopped. Every answer must be 200 or 429.
fn load(world: &World, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Vec<Sample>> {
    let (mut client, stop) = (world.client(), Arc::clone(stop));
    thread::spawn(move || {
        let mut samples = Vec::new();
        while !stop.load(Ordering::Relaxed) && samples.len() < 1_000_000 {
            let sent = Instant::now();
            let status = client.send(&users_with(KEY)).unwrap().status;
            assert!([200, 429].contains(&status), "{status}");
            samples.push(Sample { sent, answered: Instant::now(), passed: status == 200 });
        }
        samples
    })
}

/// How many of the requests that come at these times one exact bucket lets through.
fn exact(times: impl Iterator<Item = Instant>) -> usize {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let (mut tokens, mut last, mut passed) = (BURST, times[0], 0);
    for time in times {
        tokens = (tokens + time.duration_since(last).as_secs_f64() * RATE).min(BURST);
        last = time;
        if tokens >= 1.0 {
            tokens -= 1.0;
            passed += 1;
        }
    }
    passed
}

#[test]
fn lets_through_what_one_exact_bucket_would_on_two_workers_and_across_an_update() {
    let world = World::start();
    let limit = "    - policy: rateLimit\n      params: { requests: 100, per: 1s, burst: 10 }\n    - policy: headers\n      params:\n        remove";
    world.site.replace("policies.yaml", "    - policy: headers\n      params:\n        remove", limit).unwrap();
    let mut client = world.client();
    wait::until_true("the limit", || Ok((0..50).any(|_| client.send(&users_with(KEY)).unwrap().status == 429)))
        .unwrap();
    // A full bucket to begin with.
    thread::sleep(Duration::from_millis(200));
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..CONNECTIONS).map(|_| load(&world, &stop)).collect();
    thread::sleep(Duration::from_secs(3));
    world.site.replace("policies.yaml", "x-guarded-by: postern", "x-guarded-by: updated").unwrap();
    thread::sleep(Duration::from_secs(3));
    stop.store(true, Ordering::Relaxed);
    let samples: Vec<Sample> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let passed = samples.iter().filter(|sample| sample.passed).count();
    // On a machine that stands still for a moment, the two differ.
    let expect = [exact(samples.iter().map(|sample| sample.sent)), exact(samples.iter().map(|sample| sample.answered))];
    let (least, most) = (expect[0].min(expect[1]), expect[0].max(expect[1]));
    let workers = world.envoy.stats("downstream_cx_total").unwrap();
    println!("{} requests, {passed} let through, {least} to {most} by one exact bucket", samples.len());
    let within = least * 49 <= passed * 50 && passed * 50 <= most * 51;
    assert!(within, "{passed} of {} let through, an exact bucket: {least} to {most}", samples.len());
    assert!(samples.len() > most * 2, "there was no load: {} requests", samples.len());
    let busy = workers.iter().filter(|(name, value)| name.contains("worker_") && *value > 0).count();
    assert_eq!(busy, 2, "both workers must have taken part: {workers:?}");
    let updated = world.client().send(&users_with(KEY)).unwrap();
    assert!(updated.status == 429 || updated.echoed("x-guarded-by") == ["updated"], "{updated:?}");
    world.assert_no_vm_failure();
}
