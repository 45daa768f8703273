//! Counts the work that is really done, apart from what is charged for it, so that tests can compare the two: work
//! without a charge is a hole in the budget. A unit of work never costs more than a step.

use std::cell::Cell;

thread_local! {
    static ACCOUNT: Cell<Account> = const { Cell::new(Account { work: 0, spent: 0, declared: 0 }) };
}

/// What all budgets of a thread together were charged, and how much work was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// The work: nodes of expressions, bytes of texts and values of documents that were looked at.
    pub work: u64,
    /// The steps that were charged, declared ones included.
    pub spent: u64,
    /// The steps that policies declared.
    pub declared: u64,
}

/// Returns what was counted on this thread since the last call, and starts anew.
pub fn take() -> Account {
    ACCOUNT.take()
}

fn count(change: impl FnOnce(&mut Account)) {
    let mut account = ACCOUNT.get();
    change(&mut account);
    ACCOUNT.set(account);
}

pub(crate) fn work(units: usize) {
    count(|account| account.work = account.work.saturating_add(super::steps(units)));
}

pub(crate) fn spend(steps: u64) {
    count(|account| account.spent = account.spent.saturating_add(steps));
}

pub(crate) fn declare(steps: u64) {
    spend(steps);
    count(|account| account.declared = account.declared.saturating_add(steps));
}
