//! Records that can't be read.

use std::time::Duration;

use dlock_core::{LockOptions, Locks};
use tokio::time::sleep;

use crate::support::{connect, create, run, server};

#[test]
fn a_record_that_can_not_be_read_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        let locks = Locks::over(connect(&create(&server)).await?)?;
        let locks = locks.with_options(LockOptions::new().with_lease(lease))?;
        let mut held = Vec::new();
        for n in 0..30 {
            held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
        }
        let spoil = "UPDATE dlock_lock SET snap = 'v2 1 1;', log = '' WHERE name = 'l000'";
        server.run_sql(spoil).await?;
        for _ in 0..8 {
            sleep(lease / 4).await;
            let lost = held[1..].iter().filter(|guard| guard.check().is_err()).count();
            assert_eq!(lost, 0);
        }
        assert!(held[0].check().is_err(), "the test is of no use: the record is read");
        Ok(())
    });
}

/// The server itself refuses to write one of the rows.
#[test]
fn a_row_that_can_not_be_written_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let lease = Duration::from_secs(6);
        let locks = Locks::over(connect(&create(&server)).await?)?;
        let locks = locks.with_options(LockOptions::new().with_lease(lease))?;
        let mut held = Vec::new();
        for n in 0..30 {
            held.push(locks.mutex(format!("l{n:03}"))?.lock().await?);
        }
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                      $$ BEGIN RAISE 'not this one'; END $$; \
                      CREATE TRIGGER refuse BEFORE UPDATE ON dlock_lock FOR EACH ROW \
                      WHEN (OLD.name = 'l000') EXECUTE FUNCTION refuse()";
        server.run_sql(refuse).await?;
        for _ in 0..8 {
            sleep(lease / 4).await;
            let lost = held[1..].iter().filter(|guard| guard.check().is_err()).count();
            assert_eq!(lost, 0);
        }
        assert!(held[0].check().is_err(), "the test is of no use: the row is written");
        Ok(())
    });
}
