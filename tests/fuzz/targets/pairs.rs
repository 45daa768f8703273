//! The border to Envoy: any buffer as headers are read from it.

#![cfg_attr(fuzzing, no_main)]

// Private to the filter, and needs nothing of it.
#[path = "../../../filter/src/pairs.rs"]
mod pairs;

use postern_engine::Headers;

postern_fuzz::target!(run: run, seeds: seeds);

/// What decodes lies in the buffer, and is what encoding it again gives.
fn run(input: &[u8]) {
    let Some(headers) = Headers::read(input.to_vec()) else { return };
    let size: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 10).sum();
    assert!(size <= input.len(), "headers of {size} bytes in a buffer of {}", input.len());
    let text: Option<Vec<_>> =
        headers.iter().map(|(name, value)| Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?))).collect();
    if let Some(text) = text {
        let again = pairs::encode(&text).and_then(Headers::read);
        assert!(again.is_some_and(|again| again.iter().eq(headers.iter())), "{text:?} does not come back");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let lists: [&[(&str, &str)]; 4] = [
        &[],
        &[("", "")],
        &[(":path", "/a?b=c"), (":method", "GET")],
        &[("cookie", "a=b; c=d"), ("cookie", ""), ("x-api-key", "é")],
    ];
    lists.into_iter().filter_map(pairs::encode).chain([vec![], vec![255; 64]]).collect()
}
