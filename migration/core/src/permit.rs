// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who may do what (RFD 34, R14).

use serde_json::Value;
use uuid::Uuid;

use crate::machine::Action;
use crate::record::Record;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// No account: the call comes from the operators' side.
    Operator,
    /// `owner_uuid` of the call.
    Account(Uuid),
}

/// Why a call is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The VM is another account's, which does not learn that it exists.
    #[error("VM not found")]
    NotFound,
    /// Neither the data centre nor the VM allows it.
    #[error("User migration on this VM not allowed")]
    NotAllowed,
    /// An operator began the migration.
    #[error("This migration was begun by an operator")]
    NotYours,
}

impl Denied {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        if *self == Denied::NotFound { 404 } else { 412 }
    }

    /// Returns the code of the body.
    pub fn code(&self) -> &'static str {
        if *self == Denied::NotFound { "ResourceNotFound" } else { "PreconditionFailed" }
    }
}

/// What is known of the VM.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The VM's owner.
    pub owner: Uuid,
    /// `internal_metadata.user_migration_allowed`, if the VM has it.
    pub allowed: Option<&'a Value>,
}

/// Returns whether accounts may migrate the VM: its own flag overrides the data centre's, and only the
/// value true allows.
pub fn is_allowed(subject: Subject<'_>, allow_user_migrations: bool) -> bool {
    subject.allowed.map_or(allow_user_migrations, |flag| *flag == Value::Bool(true))
}

/// Checks an action. An account controls the migrations that it began; those of operators it may read.
pub fn permit(
    caller: Caller,
    action: Action,
    subject: Subject<'_>,
    record: Option<&Record>,
    allow_user_migrations: bool,
) -> Result<(), Denied> {
    let Caller::Account(account) = caller else { return Ok(()) };
    permit_reading(caller, subject)?;
    let begins = record.is_none() && action == Action::Schedule;
    if begins || matches!(action, Action::Begin | Action::Estimate) {
        let is_allowed = is_allowed(subject, allow_user_migrations);
        return if is_allowed { Ok(()) } else { Err(Denied::NotAllowed) };
    }
    match record {
        Some(record) if record.account_uuid != Some(account) => Err(Denied::NotYours),
        _ => Ok(()),
    }
}

/// Checks that the caller may see the VM's migrations.
pub fn permit_reading(caller: Caller, subject: Subject<'_>) -> Result<(), Denied> {
    match caller {
        Caller::Account(account) if account != subject.owner => Err(Denied::NotFound),
        _ => Ok(()),
    }
}

/// Completes a record of the deployed service, which has an owner only where an account asked.
/// `operators` is the account that operators act as.
pub fn adopt(record: &mut Record, vm_owner: Uuid, operators: Uuid) {
    let asked = record.owner_uuid.unwrap_or(operators);
    record.account_uuid.get_or_insert(asked);
    record.owner_uuid = Some(vm_owner);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::record;

    const OWNER: Uuid = Uuid::from_u128(1);

    #[test] // R14
    fn only_true_allows_and_the_vms_flag_overrides() {
        for (flag, centre, want) in [
            (None, false, false),
            (None, true, true),
            (Some(json!(true)), false, true),
            (Some(json!(false)), true, false),
            (Some(json!("true")), true, false),
            (Some(json!("true")), false, false),
            (Some(json!(1)), true, false),
            (Some(json!(null)), true, false),
        ] {
            let subject = Subject { owner: OWNER, allowed: flag.as_ref() };
            assert_eq!(is_allowed(subject, centre), want, "{flag:?} {centre}");
            let begin = |caller| permit(caller, Action::Begin, subject, None, centre);
            assert_eq!(begin(Caller::Operator), Ok(()));
            assert_eq!(begin(Caller::Account(OWNER)).is_ok(), want);
        }
    }

    #[test] // R14
    fn the_matrix_of_callers_records_and_actions() {
        let (mine, operators) = (record(json!({"account_uuid": OWNER})), record(json!({})));
        let yes = json!(true);
        for (what, allowed) in [("allowed", true), ("not allowed", false)] {
            let subject = Subject { owner: OWNER, allowed: Some(&yes).filter(|_| allowed) };
            for action in Action::ALL {
                let ask = |caller, record| permit(caller, action, subject, record, false);
                let begins = matches!(action, Action::Begin | Action::Estimate);
                for record in [None, Some(&mine), Some(&operators)] {
                    assert_eq!(ask(Caller::Operator, record), Ok(()));
                    let other = ask(Caller::Account(Uuid::from_u128(2)), record);
                    assert_eq!(other, Err(Denied::NotFound), "{what} {action:?}");
                }
                let flag = if allowed { Ok(()) } else { Err(Denied::NotAllowed) };
                let owner = Caller::Account(OWNER);
                let (own, theirs) =
                    if begins { (flag, flag) } else { (Ok(()), Err(Denied::NotYours)) };
                assert_eq!(ask(owner, Some(&mine)), own, "{what} {action:?}");
                assert_eq!(ask(owner, Some(&operators)), theirs, "{what} {action:?}");
                let new = if begins || action == Action::Schedule { flag } else { Ok(()) };
                assert_eq!(ask(owner, None), new, "{what} {action:?}");
                assert_eq!(permit_reading(owner, subject), Ok(()));
            }
        }
    }

    #[test] // M27
    fn a_deployed_record_gets_its_owner_and_keeps_who_asked() {
        let operators = Uuid::from_u128(9);
        for (owner, want) in [(Some(OWNER), OWNER), (None, operators)] {
            let mut record = record(json!({"owner_uuid": owner}));
            for _ in 0..2 {
                adopt(&mut record, OWNER, operators);
                assert_eq!((record.owner_uuid, record.account_uuid), (Some(OWNER), Some(want)));
            }
        }
    }
}
