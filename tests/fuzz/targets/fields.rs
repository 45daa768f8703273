//! Headers that signatures are made of: any bytes as a structured field, which is read back as it is written, and as a date,
//! which is the one that its seconds mean.

#![cfg_attr(fuzzing, no_main)]

// Private to the engine, and needing nothing of it.
#[path = "../../../engine/src/text/date.rs"]
mod date;
#[allow(dead_code, reason = "the engine uses all of it")]
#[path = "../../../engine/src/text/fields.rs"]
mod fields;

use fields::{Dictionary, Item, MemberValue, Parameters, write_list};

postern_fuzz::target!(run: run, seeds: seeds);

fn run(input: &[u8]) {
    let lines: Vec<_> = input.split(|byte| *byte == b'\n').collect();
    if let Some(dictionary) = Dictionary::read(&lines) {
        let keys: Vec<_> = dictionary.0.iter().map(|(key, _)| key.clone()).collect();
        let written: Vec<_> = dictionary.0.into_iter().map(|(key, member)| write(&key, member)).collect();
        let again = Dictionary::read(&[written.join(", ").as_bytes()]);
        let again = again.map(|again| again.0.into_iter().map(|(key, member)| (key.clone(), write(&key, member))));
        let expect = keys.into_iter().zip(written);
        assert!(again.is_some_and(|again| again.eq(expect)), "it does not come back");
    }
    if let Some(seconds) = date::read(input) {
        assert_eq!(input, format_date(seconds, input.get(23..25) == Some(b"60")).as_bytes());
    }
}

/// An item stands alone in a list, since only lists are written.
fn write(key: &str, member: fields::Member) -> String {
    match member.value {
        MemberValue::List(items) => format!("{key}={}", write_list(&items, &member.parameters)),
        MemberValue::Item(bare) => {
            format!("{key}={}", write_list(&[Item { bare, parameters: member.parameters }], &Parameters::default()))
        }
    }
}

/// The date of so many seconds, by counting years and months; a leap second is written as one.
fn format_date(seconds: i64, leap_second: bool) -> String {
    let seconds = if leap_second { seconds - 1 } else { seconds };
    let (mut days, clock) = (seconds / 86_400, seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"].get(usize::try_from(days % 7).unwrap_or(0));
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut month = "";
    for (name, length) in names.into_iter().zip(lengths) {
        month = name;
        if days < length {
            break;
        }
        days -= length;
    }
    let second = clock % 60 + i64::from(leap_second);
    let (hour, minute) = (clock / 3600, clock / 60 % 60);
    let weekday = weekday.copied().unwrap_or_default();
    format!("{weekday}, {:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT", days + 1)
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"sig1=("@method" "@path";req);created=1618884473;keyid="a\"b\\c";x;y=?0"#,
        "sig=:AQID:, other=tok/en;a=1.5;b=-3\nnext",
        "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
        "a=(  \"x\"  \"y\" );  q=1 ,\tb ",
        "Tue, 20 Apr 2021 02:07:55 GMT",
        "Tue, 29 Feb 2000 23:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:60 GMT",
        "Sun Nov  6 08:49:37 1994",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
