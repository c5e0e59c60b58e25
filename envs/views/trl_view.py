"""TRL's environment interface: a game of texts for `GRPOTrainer(environment_factory=...)`.

    game = GAMES["GHAR"]()                                     # ghar.envs.register, or TextGame(scene_of(system))
    trainer = GRPOTrainer(model, args=arguments, processing_class=tokenizer, train_dataset=rows(game),
                          environment_factory=lambda: TrlEnvironment(game))

The model answers every question of an episode by calling the tool `reply`; the reward is R_all of the episode. TRL sees
one agent with one growing text: our own trainer, which gives each agent its own prompts and credit, is another thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnasium.error import InvalidAction

from ghar.envs.views.games import TextGame, TextPlay, earned

if TYPE_CHECKING:
    from datasets import Dataset

ASK = "Answer each question about a patient by calling the tool reply with your answer, until no question is left."


def rows(game: TextGame, cases: int | None = None) -> Dataset:
    """One row a case, for `train_dataset`: all generations of a group play the same case."""
    from datasets import Dataset

    count = len(game.scene.cases) if cases is None else min(cases, len(game.scene.cases))
    prompt = [{"role": "user", "content": ASK}]
    return Dataset.from_list([{"prompt": prompt, "case": case} for case in range(count)])


class TrlEnvironment:
    """One episode after the other; TRL makes one for each generation of a batch."""

    def __init__(self, game: TextGame):
        self._game = game
        self._play: TextPlay | None = None

    def reset(self, case: int = 0, **row: object) -> str:
        """Begin the episode of a row's case. Returns the first question."""
        self._play = self._game.start(self._game.scene.cases[case], seed=0)
        return self._question()

    def reply(self, text: str) -> str:
        """Answer the question that was asked last.

        Args:
            text: The answer, one of the choices where the question has some.

        Returns:
            The next question, or that none is left.
        """
        if self._play is None or not (waiting := self._play.paused.waiting()):
            return "No question is left."
        try:
            self._play.act(waiting[0][1], text)
        except InvalidAction as error:
            return str(error)
        return self._question()

    def get_reward(self) -> float:
        """What the episode has earned; an episode that was not played to its end has earned what its scene pays on the
        way, which is nothing where rewards arrive at the end."""
        return 0.0 if self._play is None else earned(self._play)

    def _question(self) -> str:
        assert self._play is not None
        waiting = self._play.paused.waiting()
        if not waiting:
            return "No question is left."
        act = self._play.paused.acts[waiting[0][1]]
        return f"{act.prompt}\nChoices: {', '.join(act.choices)}" if act.choices else act.prompt
