//! What an input may cost, in steps: no more than it is allowed, and no less than what was done.

use postern_engine::budget::{STEPS_A_BODY_BYTE, meter};

/// Starts to count.
pub fn start() {
    meter::take();
}

/// Checks what was counted since [`start`]: `budgets` of `steps` each were there to spend, and `read` bytes of bodies
/// allow more.
///
/// # Panics
/// If more was spent, or if work was done that nobody was charged for.
pub fn check(budgets: u64, steps: u64, read: usize) {
    let account = meter::take();
    let body = (read as u64).saturating_mul(STEPS_A_BODY_BYTE);
    let allowed = steps.saturating_mul(budgets).saturating_add(body).saturating_add(account.declared);
    assert!(account.spent <= allowed, "{account:?}, but {allowed} steps were allowed");
    assert!(account.work <= account.spent, "{account:?}: there was work that nobody was charged for");
}
