//! Quantiles of what was measured.

/// A quantile. Interpolates between the two nearest values.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * sorted.len().saturating_sub(1) as f64;
    let at = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
    at(place.floor()) + (at(place.ceil()) - at(place.floor())) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), 2.0);
    }
}
