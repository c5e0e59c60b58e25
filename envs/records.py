"""What any system may be built from: one cohort, one task, one split by patient, and beside them a graph, summaries,
charts, each read when a system first asks for it. No model yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import polars as pl

from ghar.config import Config, DataConfig
from ghar.data.audit import Exposure, exposure
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.findings import has_facts, lab_units, with_findings
from ghar.data.mapping import CodeMap, read_code_map
from ghar.data.readers.database import is_database, with_tables
from ghar.data.readers.notes import Notes, read_notes
from ghar.data.readers.source import no_patients, origin
from ghar.data.tasks.cards import TaskCard, card_of
from ghar.data.tasks.label_files import label_file_card, labels_path
from ghar.data.tasks.order_check import OrderGraph, OrderQuestion, build_order_questions
from ghar.data.tasks.prevalence import beside_the_paper
from ghar.data.tasks.question_files import MEDQA, read_question_set
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import S, Splits, draw
from ghar.data.tasks.stays import Leakage
from ghar.data.tasks.summary_files import SUMMARY, read_summary_set
from ghar.data.tasks.text_files import TextSet
from ghar.data.tasks.visits import VISIT_TASKS, TaskSamples, read_task
from ghar.data.views.reports import stay_reports
from ghar.envs.worlds.cases.world import NAME as CASES
from ghar.envs.worlds.cases.world import CasesTruth, cases_folder, generate_cases, load_cases
from ghar.envs.worlds.histories.truth import LongTruth, load_truth
from ghar.envs.worlds.histories.world import EVENTS, generate_long, long_folder
from ghar.envs.worlds.severity.world import World, configured_world, load_world
from ghar.envs.worlds.source import read_source
from ghar.errors import BadInput
from ghar.kg.contraindications import contraindications
from ghar.kg.drug_names import order_text
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import Links, chart_names, link_codes, link_groups
from ghar.kg.mentions import Mentions, mentions_of
from ghar.kg.names import shared_words
from ghar.kg.primekg import open_primekg
from ghar.kg.umls import Umls, read_umls
from ghar.kg.where import graph_file, no_graph
from ghar.provenance import UNKNOWN, Provenance, learned_from_credentialed, signed_mark, weights_of_credentialed


def beside(config: Config) -> dict[str, bool]:
    """What a configuration names besides the tables of patients: key -> whether it is of credentialed patients."""
    folders: tuple[str, ...] = getattr(config.system, "patient_text", ())
    texts = {folder: signed_mark(Path(folder)).credentialed for folder in folders}
    models = {
        "model.path": config.model.path,
        "eval.checkpoint": config.eval.checkpoint,
        "trainer.warmup.teacher": config.trainer.warmup.teacher,
        "rllib.checkpoint": None if config.rllib is None else config.rllib.checkpoint,
    }
    learned = {key: learned_from_credentialed(Path(path)) for key, path in models.items() if path is not None}
    own = {"run_dir": weights_of_credentialed(Path(config.run_dir) / "checkpoints")}
    return texts | learned | own | {"task.labels": _labels_credentialed(config)}


def _labels_credentialed(config: Config) -> bool:
    """Whether a label file outside the folder of the data is of credentialed patients: all are but those in a folder
    that this machine's generator has signed. The mark of the data covers a file inside its folder."""
    if config.task.name != "labels" or config.task.labels is None:
        return False
    path = labels_path(config.task, config.data).resolve()
    root = config.data.root
    if root is not None and path.is_relative_to(Path(root).resolve()):
        return False
    folders = (path, *path.parents) if path.is_dir() else path.parents
    return all(signed_mark(folder).credentialed for folder in folders)


def of_credentialed(config: Config) -> bool:
    """`Records.credentialed` of all that a configuration names, told before any of it is read into a cohort."""
    return any(beside(config).values()) or origin(config.data).credentialed


def lacks_grades(data: DataConfig) -> bool:
    """Return whether there are patients for whom `Records.world` will be None, from the configuration and the signature
    of their folder alone; False where data.root is absent, which has an error of its own."""
    if data.name in ("meds", CASES, *EVENTS):
        generated = False
    else:
        generated = (whose := origin(data)).generated
        if data.root is None and whose is UNKNOWN:
            return False
    there = data.root is None or is_database(Path(data.root)) or Path(data.root).exists()
    return there and not generated


AUDITED = 2000  # test samples whose exposure a run measures
LEAKAGES: tuple[Leakage, ...] = ("paper", "strict")


@dataclass(frozen=True, eq=False)
class Records:
    """One configuration's data. Whatever is missing raises BadInput when it is asked for, not before.

    source: in its own codes, from which labels are made. cohort: in mapped codes where data.codes says so, which are
    shown, linked and counted; without chart measurements, which `charted` has. read: the source with its charts, where
    the caller has read it already.
    """

    config: Config
    read: Cohort | None = None

    @cached_property
    def root(self) -> Path:
        """Folder of the tables; generates the demo world where none is named."""
        data = self.config.data
        if data.root is not None:
            place = Path(data.root)  # of texts a file is enough, which their reader looks at
            if not (place.is_dir() or is_database(place) or self.texts_alone):
                raise BadInput(
                    f"data.root={data.root} is not a folder, nor a database: point it at the folder that holds "
                    "the tables."
                )
            return Path(with_tables(data, charts=False).root or data.root)
        if data.name == "demo_long" or data.name == "demo_long_small":
            root = long_folder(Path(data.cache), data.name, data.world_seed, data.patients)
            generate_long(root, name=data.name, seed=data.world_seed, patients=data.patients)
            return root
        if data.name == CASES:
            root = cases_folder(Path(data.cache), data.world_seed, data.patients)
            generate_cases(root, seed=data.world_seed, patients=data.patients)
            return root
        if data.name not in ("demo", "mimic4"):
            raise BadInput(f"data={data.name} needs data.root: the generated patients come in MIMIC-IV's files only.")
        return configured_world(data).root

    @cached_property
    def source(self) -> Cohort:
        """Events, codes and visits as they were read, without charts: they would cost memory for nothing. Texts have
        none (`no_patients`)."""
        if self.texts_alone:
            return no_patients(self.config.data)
        if self.read is not None:
            return self.read
        name = "mimic4" if self.config.data.name == "demo" else self._data.name
        data = replace(self.config.data, name=name, root=str(self.root))
        return read_source(data, charts=False, stays=self._reads_stays)

    @property
    def _reads_stays(self) -> bool:
        """Whether the system shows visits; one that reads events says so (`Settings.reads_events`)."""
        return not getattr(self.config.system, "reads_events", False)

    @property
    def long(self) -> bool:
        """Whether the patients are generated long histories."""
        return self.config.data.name in EVENTS

    @property
    def own_world(self) -> bool:
        """Whether the patients are generated ones that come as a MEDS folder, without a graph."""
        return self.long or self.config.data.name == CASES

    @property
    def _data(self) -> DataConfig:
        """Where the tables are, generated ones and those of a database included, in a folder as any others."""
        data = self.config.data
        if self.own_world:
            return replace(data, name="meds", root=str(self.root))
        return data if data.root is None else replace(data, root=str(self.root))

    @property
    def tables(self) -> Path | None:
        """The folder of the source's own tables; MEDS and OMOP have none of these, their events say what they know."""
        return None if self.own_world or self.config.data.name in ("meds", "omop") else self.root

    @property
    def facts(self) -> Path | None:
        """Where kinds of admission, units and reference ranges stand: the tables, or a MEDS folder that has them."""
        return self.root if self.tables is None and has_facts(self.root) else self.tables

    @cached_property
    def code_map(self) -> CodeMap | None:
        """What codes become; None where they stay as they are."""
        data = self.config.data
        return None if data.codes is None else read_code_map(self.source, Path(data.codes), self.root, data.mapping)

    @cached_property
    def cohort(self) -> Cohort:
        """The source in the codes that systems see."""
        return self.source if self.code_map is None else self.code_map.cohort(self.source)

    @cached_property
    def charted(self) -> Cohort:
        """The same with chart measurements; the demo world gets them now."""
        read = self.charted_source
        return read if self.code_map is None else self.code_map.cohort(read)

    @cached_property
    def charted_source(self) -> Cohort:
        """The source with chart measurements, in its own codes. BadInput for a task of texts."""
        self.require_patients()
        if self.read is not None:
            return self.read
        data = self._data if self.own_world else self.config.data  # a database is asked for charts too
        data = data if data.root is not None or data.name != "mimic4" else replace(data, name="demo")
        return read_source(data, stays=self._reads_stays)

    def credentialed(self, *parts: Cohort | Notes | Provenance) -> bool:
        """Whether one of the `parts` that a system is made of is of credentialed patients or of unknown origin, or
        anything else that the configuration names: texts beside the tables, models that have learned from patients."""
        return any(part.credentialed for part in parts) or any(beside(self.config).values())

    def require_patients(self) -> None:
        """BadInput for a task of texts, which no patient's tables stand behind."""
        if self.texts_alone:
            raise BadInput(
                f"system={self.config.system.name} reads codes, visits or events of patients, and "
                f"task={self.config.task.name} has texts alone: choose system=ghar, kare, exprag, graphwalker, "
                "ehr_rag, comparators or baselines."
            )

    def provenance(self, *parts: Cohort | Notes) -> Provenance:
        """Of the cohort, together with further `parts` that a system is made of."""
        return Provenance(self.cohort.generated, self.credentialed(self.cohort, *parts))

    @property
    def asks_questions(self) -> bool:
        """Whether the task is to answer questions, which `texts` then are."""
        return self.config.task.name == MEDQA

    @property
    def asks_summaries(self) -> bool:
        """Whether the task is to write summaries of `texts`."""
        return self.config.task.name == SUMMARY

    @property
    def texts_alone(self) -> bool:
        """Whether the samples are texts, and no tables of patients are read."""
        return self.asks_questions or self.asks_summaries

    @cached_property
    def texts(self) -> TextSet[TextSample[Any]]:
        """What a task of texts has in place of samples of visits, by split, at most task.max_train and so on: questions
        (`ChoiceQuestion`), or texts with their summaries (`SummarisedText`)."""
        root = self.config.data.root
        assert root is not None  # ghar.contradictions asks for it
        read = read_question_set if self.asks_questions else read_summary_set
        texts = read(Path(root), self.config.task)
        return TextSet(texts.task, self.limited(texts.splits))

    @cached_property
    def mentions(self) -> Mentions:
        """What texts may mention of the graph."""
        return mentions_of(self.primekg)

    @property
    def task(self) -> Task:
        """The task of visits or texts that task=... names."""
        return self.texts.task if self.texts_alone else self.samples.task

    @property
    def train_labels(self) -> list[int]:
        """The label of each training sample."""
        train = self.texts.splits.train if self.texts_alone else self.splits.train
        return [sample.label for sample in train]

    @cached_property
    def samples(self) -> TaskSamples:
        """All samples of that task, and their split; those of real patients with what their charts say (`findings`),
        where records are shown at full length. BadInput for a task of texts."""
        self.require_patients()
        read = read_task(self.source, self._data, self.config.task, self.code_map)
        read = replace(read, splits=self._played(read.splits))
        if self.source.generated or self.config.env.prompts != "full":
            return read
        samples = with_findings(read.samples, self.charted, self.facts)
        by_id = {sample.sample_id: sample for sample in samples}
        whole = (read.splits.train, read.splits.valid, read.splits.test, read.splits.pool)
        splits = Splits(*(tuple(by_id[s.sample_id] for s in part) for part in whole))
        return replace(read, samples=samples, splits=splits)

    @property
    def units(self) -> Callable[[], Mapping[str, str]] | None:
        """Code -> unit of its numbers, of real patients whose records are shown at full length; None where their events
        say it themselves."""
        if self.source.generated or self.config.env.prompts != "full" or self.facts is None:
            return None
        return partial(lab_units, self.facts)

    @cached_property
    def order_questions(self) -> tuple[Splits[OrderQuestion], Mapping[str, int]]:
        """Every question of task=order_check by split, and what they are made from."""
        graph, edges, task = self.primekg, contraindications(self.primekg), self.config.task
        read = OrderGraph(
            self.links.nodes, edges.drugs, edges.relatives, edges.parents, edges.degrees(),
            name_of=graph.names.__getitem__, shares=shared_words,
        )  # fmt: skip
        return build_order_questions(self.cohort, self.names, read, task.split, task.split_seed)

    def exposures(self) -> dict[str, Exposure]:
        """What test samples show under paper and under strict, at most `AUDITED`, drawn; for a task of visits. Empty
        for another, and where no one knows when the outcomes were there."""
        task = self.config.task
        if task.name not in (*VISIT_TASKS, "labels"):
            return {}
        data, exposures = self._data, {}
        for leakage in LEAKAGES:
            if leakage == "strict" and task.legacy_order:
                continue
            same = leakage == data.leakage
            read = self.samples if same else read_task(self.source, replace(data, leakage=leakage), task, self.code_map)
            tested = draw(self._played(read.splits).test, AUDITED, task.split_seed)
            exposures[leakage] = exposure(self.cohort, tested)
        # a label file says nothing of outcomes' times
        has_times = any(row.score is not None for row in exposures.values())
        return exposures if has_times else {}

    @property
    def splits(self) -> Splits[Sample]:
        """Samples of visits by patient, as the data's own split has them or drawn; at most task.max_train and so on."""
        return self.samples.splits

    def limited(self, splits: Splits[S], block: int = 1) -> Splits[S]:
        """At most task.max_train, max_valid and max_test of them, drawn by blocks of so many neighbours; with
        task.max_test=0 the samples of validation in the test's place."""
        task = self.config.task
        return self._played(splits.limited(task.max_train, task.max_valid, task.max_test, task.split_seed, block))

    def _played(self, splits: Splits[S]) -> Splits[S]:
        """The test samples stay unread where an evaluation is of those of validation."""
        return replace(splits, test=splits.valid) if self.config.task.played == "valid" else splits

    @cached_property
    def world(self) -> World | None:
        """The truth of the demo world, None for real patients, for an export of generated ones, which has none of it,
        and for worlds that have one of their own."""
        return load_world(self.root) if self.source.generated and self._data.name != "meds" else None

    @cached_property
    def long_truth(self) -> LongTruth | None:
        """The truth of generated long histories, None for other patients."""
        return load_truth(self.root) if self.long else None

    @cached_property
    def cases_truth(self) -> CasesTruth | None:
        """The truth of data=demo_cases, None for other patients."""
        return load_cases(self.root) if self.config.data.name == CASES else None

    @cached_property
    def card(self) -> TaskCard:
        """How the task is put in words."""
        config, task = self.config.task, self.task
        return label_file_card(config, self._data, task) if config.name == "labels" else card_of(task)

    @cached_property
    def graph(self) -> KnowledgeGraph | Umls:
        """PrimeKG's format, or UMLS, which KARE's path search alone reads."""
        path = self.graph_path
        return read_umls(path) if path.is_dir() else open_primekg(path, Path(self.config.data.cache) / "graphs")

    @property
    def primekg(self) -> KnowledgeGraph:
        """The graph in PrimeKG's format. BadInput where it is UMLS."""
        if isinstance(self.graph, Umls):
            raise BadInput(
                f"kg.path={self.config.kg.path} holds UMLS, which only KARE's path search reads, with an engine or a "
                "server as system.expert: name a PrimeKG-format csv or csv.gz."
            )
        return self.graph

    @cached_property
    def links(self) -> Links:
        """Codes to nodes of the graph."""
        if isinstance(self.graph, Umls):
            nodes, codes = self.graph.link(self.cohort.codes), self.cohort.codes["code"].n_unique()
            return Links(nodes, {}, {"UMLS": len(nodes), "unlinked": codes - len(nodes)})
        links = link_codes(self.cohort.codes, self.graph, self._references)
        if self.code_map is None:
            return links
        own = link_codes(self.source.codes, self.graph, self._references)
        return link_groups(links, self.code_map.members(self.source), own)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Text of every code in the chart's own words, as every system shows it; a linked node's name is for retrieval
        (`node_names`). Generated charts take the letter case of their nodes, by which their rules find names."""
        if not self.source.generated:
            return self.described
        graph = self.graph.graph if isinstance(self.graph, Umls) else self.graph
        return self.links.respelled(self.cohort.names(), graph)

    def name_of(self, code: str) -> str:
        """The text of a code; the code itself where no one describes it."""
        return self.names.get(code, code)

    @cached_property
    def described(self) -> Mapping[str, str]:
        """Text of every code as the source describes it; orders of real patients without amounts, forms and packs."""
        texts = chart_names(self.cohort.names())
        if self.source.generated:
            return texts
        return {code: order_text(text) if code.startswith("DRUG/") else text for code, text in texts.items()}

    @cached_property
    def node_names(self) -> Mapping[str, str]:
        """Chart text -> name of the linked node where they differ, for retrieval. Empty for generated patients."""
        if self.source.generated:
            return {}
        return self.links.node_names(self.described, self.primekg)

    def linked_codes(self) -> pl.DataFrame:
        """code, shown, node, rule, events: what each code of the cohort is shown as and linked to, the commonest first.
        node and rule are null where a code has no node."""
        graph, links = self.primekg, self.links
        uses = self.cohort.scan().group_by("code").agg(pl.len().cast(pl.Int64).alias("events")).collect()
        rows = [
            (code, name, graph.names[links.nodes[code]] if code in links.nodes else None, links.rules.get(code))
            for code, name in self.names.items()
        ]
        text = pl.String()
        schema = {"code": text, "shown": text, "node": text, "rule": text}
        table = pl.DataFrame(rows, schema, orient="row").join(uses, on="code")
        return table.sort("events", "code", descending=[True, False])

    def notes(self, folder: str | None) -> Notes | None:
        """Discharge summaries: those of `folder`, generated ones for generated patients, None where there are none."""
        cache = Path(self.config.data.cache) / "notes"
        if folder is not None:
            return read_notes(Path(folder), cache)
        if self.config.data.root is not None or self.own_world:
            return None
        from ghar.envs.worlds.severity.notes import write_notes  # only where summaries are generated

        written = self.root.with_name(f"{self.root.name}-notes")
        write_notes(self.root, written)
        return read_notes(written, cache)

    def reports(self, folder: str | None) -> Notes:
        """A report of every stay: its discharge summary (`notes`), else a record of its codes in the words of
        `described`, as the patient who asks is shown."""
        return stay_reports(self.cohort, self.notes(folder), self.described.__getitem__)

    @cached_property
    def phenotypes(self) -> dict[int, int] | None:
        """Which phenotype the habits of each stay's generated summary follow, for evaluation ONLY; None for others."""
        from ghar.envs.worlds.severity.notes import read_phenotypes

        if self.notes(None) is None:
            return None
        return read_phenotypes(self.root.with_name(f"{self.root.name}-notes"))

    @property
    def graph_path(self) -> Path:
        """File of the graph, or folder of UMLS. BadInput where there is none."""
        given = self.config.kg.path
        path = graph_file(self.config.kg, self.root)
        if not path.exists() and given:
            raise BadInput(f"kg.path={path} does not exist: set kg.path to a PrimeKG-format csv or csv.gz.")
        if not path.exists():
            raise BadInput(no_graph(path))
        return path

    @property
    def _references(self) -> Path | None:
        given = self.config.kg.references
        path = Path(given) if given else self.root / "kg" / "mondo_references.csv.gz"
        if not path.exists() and given:
            raise BadInput(f"kg.references={path} does not exist: correct it, or leave it out to link by name.")
        return path if path.exists() else None

    def counts(self) -> dict[str, Any]:
        """What was read and repaired, for the report; and where a paper's protocol is followed, whether its tables
        allow the share of positives."""
        if self.texts_alone:
            parts, what = self.texts.splits, "questions" if self.asks_questions else "texts"
            sizes = {"train": len(parts.train), "validation": len(parts.valid), "test": len(parts.test)}
            shared = {
                f"test {what} with a copy in training": _shared(parts, lambda one: one.text.content),
                f"test {what} of a training patient": _shared(parts, lambda one: one.subject_id),
            }
            return {f"{part} {what}": n for part, n in sizes.items()} | {rule: n for rule, n in shared.items() if n}
        cohort, splits, config = self.cohort, self.splits, self.config
        labels = [sample.label for sample in splits.test]  # a paper's tables are of its test samples
        beside = beside_the_paper(config.protocol.name, config.task.name, config.data.name, labels)
        return {
            **({} if beside is None or cohort.generated else {"positive test samples": beside}),
            "patients": cohort.visits["subject_id"].n_unique(),
            "visits": len(cohort.visits),
            "events": cohort.scan().select(pl.len()).collect().item(),
            "train samples": len(splits.train),
            "validation samples": len(splits.valid),
            "test samples": len(splits.test),
            **self.samples.counts,
            **{rule: n for rule, n in cohort.counts.items() if n and not rule.startswith("rows.")},
        }

    def graph_counts(self) -> dict[str, int]:
        """Size of the graph, and by which rule codes were linked to it."""
        graph, counts = self.graph, self.links.counts
        nodes = len(graph.cuis) if isinstance(graph, Umls) else graph.num_nodes
        edges = len(graph.graph.head) if isinstance(graph, Umls) else graph.num_edges
        linked = {f"codes linked, {r}" if r != "unlinked" else "codes unlinked": n for r, n in counts.items()}
        return {"graph nodes": nodes, "graph edges": edges, **linked}


def _shared(parts: Splits[Any], what: Callable[[Any], Hashable]) -> int:
    """How many test samples have something that a training sample has, too."""
    there = set(map(what, parts.train))
    return sum(what(one) in there for one in parts.test)
