//! Records that can't be read, and rows that can't be written.

use dlock_core::{AcquireRequest, DynBackend, Renewal, Renewed};
use dlock_testlab::{Verdict, postgres::PostgresServer};

use crate::support::{connect, create, exclusive, run, server, take};

fn renewal(request: &AcquireRequest) -> Renewal {
    let AcquireRequest { mode, lease, .. } = *request;
    Renewal::new(request.as_claim(), mode, lease)
}

/// Renews many locks at once, the row of the last of which was changed like this.
async fn renews_the_others(server: &PostgresServer, client: &DynBackend, change: &str) -> Verdict {
    let held: Vec<_> = (0..30).map(|n| exclusive(&format!("l{n:03}"))).collect();
    for held in &held {
        take(client, held).await?;
    }
    server.run_sql(change).await?;
    let renewals: Vec<_> = held.iter().map(renewal).collect();
    let renewed = client.renew(&renewals).await?;
    assert_eq!(renewed[..29], [Renewed::Kept; 29]);
    assert_eq!(renewed[29], Renewed::Unknown);
    // Alone, it says why.
    assert!(client.renew(&renewals[29..]).await.is_err());
    Ok(())
}

#[test]
fn an_unreadable_record_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let client = connect(&create(&server)).await?;
        let spoil = "UPDATE dlock_lock SET snap = 'v9 1 1;', log = '' WHERE name = 'l029'";
        renews_the_others(&server, &client, spoil).await
    });
}

/// The server itself refuses to write one of the rows.
#[test]
fn an_unwritable_row_costs_no_other_lock() {
    run(async {
        let server = server().await?;
        let client = connect(&create(&server)).await?;
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                      $$ BEGIN RAISE 'not this one'; END $$; \
                      CREATE TRIGGER refuse BEFORE UPDATE ON dlock_lock FOR EACH ROW \
                      WHEN (OLD.name = 'l029') EXECUTE FUNCTION refuse()";
        renews_the_others(&server, &client, refuse).await
    });
}

#[test]
fn rows_of_an_unknown_format_fail_and_stay_unchanged() {
    run(async {
        let server = server().await?;
        for option in ["", "&dlock.pooler=true"] {
            let client = connect(&format!("{}{option}", create(&server))).await?;
            let run = async |sql: String| server.run_sql(&sql).await;
            let row = async || {
                let row = server.query("SELECT base, snap, log FROM dlock_lock WHERE name = 'a'");
                Ok(format!("{:?}", row.await?))
            };
            crate::formats::fail_and_stay_unchanged(&client, run, row).await?;
        }
        Ok(())
    });
}

#[test]
fn golden_rows_are_written_and_read() {
    run(async {
        let server = server().await?;
        let (writer, reader) = (connect(&create(&server)).await?, connect(&server.url()).await?);
        let golden = include_str!("../golden/postgres-format-1.txt");
        let rows = "SELECT name, snap, log FROM dlock_lock ORDER BY name";
        let rows = async || server.query(rows).await;
        let run = async |sql: String| server.run_sql(&sql).await;
        crate::golden::written_and_read(&writer, &reader, golden, rows, run).await
    });
}
