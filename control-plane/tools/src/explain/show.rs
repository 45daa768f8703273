//! An explanation as text for a terminal, coloured if the terminal supports it.

use std::fmt::{self, Display, Formatter};

use anstyle::{AnsiColor, Style};
use postern_model::Level;
use serde_json::Value as Json;

use super::{DecisionLine, DestinationLine, Explanation, FieldLine, OriginLine, Reached, StepLine, WithheldLine};

const HEAD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const NAME: Style = AnsiColor::Cyan.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();

/// The maximum length of a value that is shown whole.
const LONGEST_VALUE: usize = 48;

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        if !self.permissions.is_empty() {
            writeln!(f, "\n{HEAD}permissions{HEAD:#} {DIM}the first that fits decides; without one: 403{DIM:#}")?;
            for rule in &self.permissions {
                let action = format!("{:?}", rule.action).to_uppercase();
                writeln!(f, "  {action:<5} {:<34} {DIM}{}{DIM:#}", rule.source, ShownOrigin(&rule.origin))?;
            }
        }
        chain(f, "request", &self.request)?;
        chain(f, "response", &self.response)?;
        self.destinations.iter().try_for_each(|destination| calls(f, destination))?;
        if !self.tracing.is_empty() {
            writeln!(f, "\n{HEAD}tracing{HEAD:#}")?;
            self.tracing.iter().try_for_each(|field| line(f, field, true))?;
        }
        match &self.decision {
            Some(decision) => decision.fmt(f),
            None => Ok(()),
        }
    }
}

impl Display for DecisionLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        show_decision(f, self)
    }
}

impl Explanation {
    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        let or_dash = |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
        write!(f, "{HEAD}node{HEAD:#}   {} {DIM}service{DIM:#} {} ", or_dash(&node.id), or_dash(&node.service))?;
        write!(f, "{DIM}mesh{DIM:#} {}", node.mesh)?;
        for (index, (name, value)) in node.tags.iter().enumerate() {
            write!(f, "{} {name}={value}", if index == 0 { format!(" {DIM}tags{DIM:#}") } else { String::new() })?;
        }
        if let Some(Reached { gateway, route: None, .. }) = &self.reached
            && self.route.is_empty()
        {
            return writeln!(f, "\n{HEAD}route{HEAD:#}  none {DIM}of gateway{DIM:#} {gateway}");
        }
        write!(f, "\n{HEAD}route{HEAD:#}  {}", or_dash(&self.route))?;
        match &self.declared {
            Some(declared) => {
                write!(
                    f,
                    " {DIM}of gateway{DIM:#} {} {DIM}to service{DIM:#} {}",
                    declared.gateway,
                    declared.services.join(", ")
                )?;
            }
            None => write!(f, " {DIM}declared by no gateway of this node{DIM:#}")?,
        }
        writeln!(f)?;
        if let Some(refused) = &self.refused {
            writeln!(f, "{BAD}Every request is refused: {refused}.{BAD:#}")?;
        }
        if self.shadow {
            writeln!(f, "{WARN}All of it is in shadow mode: nothing is enforced.{WARN:#}")?;
        }
        if self.request.is_empty() && self.response.is_empty() && self.permissions.is_empty() {
            writeln!(f, "\n{WARN}Nothing guards this route: every request passes.{WARN:#}")?;
        }
        Ok(())
    }
}

fn chain(f: &mut Formatter<'_>, name: &str, steps: &[StepLine]) -> fmt::Result {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{HEAD}{name}{HEAD:#}")?;
    for (index, step) in steps.iter().enumerate() {
        let or = if step.alternative { "or " } else { "" };
        write!(f, "{:>3} {or}{NAME}{}{NAME:#}", index + 1, step.name)?;
        if step.policy != step.name {
            write!(f, " {DIM}({}){DIM:#}", step.policy)?;
        }
        if let Some(source) = &step.source {
            write!(f, " {DIM}from{DIM:#} {source}")?;
        }
        let merged = step.origins.len() > 1;
        match step.origins.as_slice() {
            [origin] => writeln!(f, "  {DIM}{}{DIM:#}", ShownOrigin(origin))?,
            origins => writeln!(f, "  {DIM}merged of {}{DIM:#}", origins.len())?,
        }
        step.fields.iter().try_for_each(|field| line(f, field, merged))?;
        for WithheldLine { field, value, origin } in &step.withheld {
            writeln!(
                f,
                "      {field:<24} {WARN}not inherited{WARN:#} {DIM}{} of {}{DIM:#}",
                Value(value),
                ShownOrigin(origin)
            )?;
        }
    }
    Ok(())
}

fn calls(f: &mut Formatter<'_>, destination: &DestinationLine) -> fmt::Result {
    for (index, (kind, fields)) in destination.kinds().enumerate() {
        if index == 0 {
            writeln!(f, "\n{HEAD}calls of {}{HEAD:#}", destination.service)?;
        }
        writeln!(f, "    {NAME}{kind}{NAME:#}")?;
        fields.iter().try_for_each(|field| line(f, field, true))?;
    }
    Ok(())
}

fn line(f: &mut Formatter<'_>, field: &FieldLine, with_origin: bool) -> fmt::Result {
    write!(f, "      {:<24} {}", field.field, Value(&field.value))?;
    if field.inherited {
        write!(f, "  {WARN}inherited from{WARN:#}")?;
    }
    if with_origin {
        write!(f, "  {DIM}{}{DIM:#}", ShownOrigin(&field.origin))?;
    }
    writeln!(f)?;
    for over in &field.over {
        let value = if over.value.is_null() { String::new() } else { format!("{} of ", Value(&over.value)) };
        writeln!(f, "        {WARN}over{WARN:#} {DIM}{value}{}{DIM:#}", ShownOrigin(&over.origin))?;
    }
    Ok(())
}

fn show_decision(f: &mut Formatter<'_>, decision: &DecisionLine) -> fmt::Result {
    writeln!(f, "\n{HEAD}this request{HEAD:#}")?;
    for (index, step) in decision.steps.iter().enumerate() {
        let (style, mark, words) = match step.fate.as_str() {
            "passed" => (GOOD, "✓", "passes"),
            "denied" => (BAD, "✗", "denies"),
            "responded" => (WARN, "→", "answers"),
            "failed" => (BAD, "!", "cannot decide"),
            "otherSource" => (DIM, "·", "is for other sources"),
            "conditionFalse" => (DIM, "·", "does not run: its condition is false"),
            _ => (DIM, "·", "is not reached"),
        };
        let reason = step.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        writeln!(f, "{:>3} {style}{mark} {}{style:#} {words}{reason}", index + 1, step.step)?;
    }
    let (style, verdict) = match decision.verdict.as_str() {
        "allow" => (GOOD, "goes upstream".to_owned()),
        "deny" => (BAD, format!("is denied with {}", decision.status.unwrap_or_default())),
        "unrouted" => (BAD, format!("is answered with {} by Envoy", decision.status.unwrap_or_default())),
        _ => (WARN, format!("is answered with {}", decision.status.unwrap_or_default())),
    };
    write!(f, "    {style}It {verdict}{style:#}")?;
    if let Some(step) = &decision.step {
        write!(f, " by {step}")?;
    }
    if let Some(reason) = decision.reason.as_ref().filter(|reason| decision.step.as_ref() != Some(*reason)) {
        write!(f, ": {reason}")?;
    }
    match &decision.consumer {
        Some(consumer) => writeln!(f, ", as consumer {consumer}."),
        None => writeln!(f, "."),
    }
}

/// An origin as text: "RoutePolicy `users-api` (route) users.yaml:14".
struct ShownOrigin<'a>(&'a OriginLine);

impl Display for ShownOrigin<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let level = match self.0.level {
            Level::Mesh => "mesh",
            Level::MeshSubset => "mesh subset",
            Level::Service => "service",
            Level::ServiceSubset => "service subset",
            Level::Proxy => "proxy",
            Level::Route => "route",
        };
        let overrides = if self.0.overrides { ", override" } else { "" };
        write!(f, "{} ({level}{overrides}) {}:{}", self.0.resource, self.0.file, self.0.line)
    }
}

struct Value<'a>(&'a Json);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        match line.chars().nth(LONGEST_VALUE) {
            Some(_) => write!(f, "{}…", line.chars().take(LONGEST_VALUE).collect::<String>()),
            None => f.write_str(&line),
        }
    }
}
