"""The replay of an archive, of `pubsub pipeline replay` and of a file: its messages go back to a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubsub.cli.running import figures, progress, sentence, session, stopping
from pubsub.protocol.names import check_new_topic, file_name
from pubsub.spark import defined, pipelines
from pubsub.spark import replay as replaying
from pubsub.spark.pipeline_file.tables import Problems

if TYPE_CHECKING:
    from pubsub.spark.pipeline_file.definition import Definition
    from pubsub.spark.pipelines import Place


@dataclass
class Replayed:
    """One replay.

    Args:
        made: its definition, with an archive.
        file: the pipeline's file, "" for the command `replay`.
        place: the cluster.
    """

    made: Definition
    file: str
    place: Place

    def run(self) -> tuple[dict[str, Any], str]:
        """Put all messages that an earlier run has not put.

        Returns:
            The results for JSON, and a sentence for a person.

        Raises:
            PubsubError: it cannot start, or a step failed.
        """
        made, to = self.made, check_new_topic(self.made.target.topic)
        directory, given = pipelines.complete_path(made.archive), made.run.checkpoint
        checkpoint = pipelines.complete_path(given) if given else f"{directory}/_replay/{file_name(to)}"
        with (
            session(made.run.master, made.run.conf) as spark,
            progress("replay") as tell,
            stopping() as stop,
        ):
            if self.file:
                defined.check_all(spark, made, self.file)
            totals = replaying.replay(
                spark, self.place, directory, to, topics=made.topics, checkpoint=checkpoint, tell=tell, stop=stop,
                made_of=lambda rows: defined.as_messages(defined.result(rows, made, Problems()), made),
            )  # fmt: skip
        facts = {"pipeline": "replay", "directory": made.archive, "to": to, "checkpoint": checkpoint}
        done = "read, and the selected ones put" if made.where or made.parse else "put"
        return facts | figures(totals), f"{sentence(totals)} {done} to {to}"
