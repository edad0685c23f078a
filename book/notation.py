"""Write notation.md: the symbols of the book, from the one list that is here.

`python -m book.notation` writes it; a test compares, and looks each symbol up in its chapter.
"""

from pathlib import Path
from typing import NamedTuple

from attnlib.files import replace

PAGE = Path(__file__).parents[1] / "notation.md"


class Symbol(NamedTuple):
    """A symbol of the book, in LaTeX, with its names and the chapter that defines it."""

    latex: str
    english: str
    meaning: str
    chinese: str
    korean: str
    chapter: str


class Group(NamedTuple):
    """Symbols that belong together, under a heading."""

    title: str
    symbols: tuple[Symbol, ...]


GROUPS = (
    Group(
        "A row of attention",
        (
            Symbol(
                "d",
                "head dimension",
                "length of one query or key",
                "头维度",
                "헤드 차원",
                "variance",
            ),
            Symbol(
                "n", "number of keys", "that a query sees", "键的个数", "키의 개수", "saturation"
            ),
            Symbol(
                "q, k", "query, key", "vectors of length $d$", "查询、键", "쿼리, 키", "variance"
            ),
            Symbol("v_i", "value", "of a key", "值", "값", "output_scale"),
            Symbol(
                "q\\cdot k",
                "dot product",
                "of a query and a key",
                "点积（内积）",
                "내적",
                "variance",
            ),
            Symbol(
                "s",
                "score",
                r"of one key, before the scale under study: $q\cdot k/\sqrt d$, or a cosine",
                "分数",
                "스코어(점수)",
                "saturation",
            ),
            Symbol(
                r"\alpha",
                "inverse temperature",
                r"what multiplies the scores. Where these have variance 1 it is the standard "
                r"deviation of the logits for random $q$ and $k$, and the Transformer's "
                r"$1/\sqrt d$ is $\alpha = 1$; where $s$ is a cosine, it is the scale itself",
                "逆温度",
                "역온도",
                "saturation",
            ),
            Symbol("t", "temperature", r"$1/\alpha$", "温度", "온도", "output_scale"),
            Symbol(
                "p_i",
                "weight",
                r"$\operatorname{softmax}(\alpha s)_i = e^{\alpha s_i}/\sum_j e^{\alpha s_j}$",
                "注意力权重",
                "어텐션 가중치",
                "saturation",
            ),
            Symbol(
                r"\Delta",
                "gap",
                "the largest score less the second largest; of a key that is meant, its score less "
                "the mean of the others",
                "间隔",
                "간격",
                "jacobian",
            ),
            Symbol("z", "output", r"$\sum_i p_i v_i$", "输出", "출력", "output_scale"),
        ),
    ),
    Group(
        "What measures a row",
        (
            Symbol(
                "Y",
                "collision probability",
                r"$\sum_i p_i^2$; two draws from the row meet with this probability",
                "碰撞概率",
                "충돌 확률",
                "saturation",
            ),
            Symbol("1/Y", "effective number of keys", "", "有效键数", "유효 키 개수", "saturation"),
            Symbol(
                "H",
                "Shannon entropy",
                r"$-\sum_i p_i\log p_i$",
                "香农熵",
                "섀넌 엔트로피",
                "saturation",
            ),
            Symbol(
                "H_2",
                "Rényi entropy",
                r"$-\log Y$",
                "Rényi 熵（雷尼熵）",
                "레니 엔트로피",
                "saturation",
            ),
            Symbol(
                "J",
                "Jacobian matrix",
                r"of the weights by the scores, $J_{ij} = \partial p_i/\partial s_j$",
                "雅可比矩阵",
                "야코비 행렬",
                "jacobian",
            ),
            Symbol(
                "g",
                "gradient",
                r"$\alpha(1 - Y)$, half the sum of the entries of $J$ without their signs",
                "梯度",
                "그래디언트(기울기)",
                "jacobian",
            ),
            Symbol(
                "G",
                "mean gradient",
                r"$\operatorname{E}g$ over random scores",
                "平均梯度",
                "평균 그래디언트",
                "exact",
            ),
        ),
    ),
    Group(
        "Random scores",
        (
            Symbol(r"\operatorname{E}", "expectation", "", "期望", "기댓값", "variance"),
            Symbol(r"\operatorname{Var}", "variance", "", "方差", "분산", "variance"),
            Symbol("f", "density", "of one score", "概率密度函数", "확률 밀도 함수", "cosine"),
            Symbol(
                "F", "distribution function", "of one score", "分布函数", "누적 분포 함수", "exact"
            ),
            Symbol(
                r"\sigma", "standard deviation", "of a score", "标准差", "표준 편차", "variance"
            ),
            Symbol(
                r"\varrho",
                "correlation",
                "of two scores, or of two vectors",
                "相关系数",
                "상관 계수",
                "exact",
            ),
            Symbol(
                r"\rho",
                "gap density",
                r"the density of the gap $\Delta$ at 0",
                "间隔密度",
                "간격 밀도",
                "exact",
            ),
            Symbol(
                r"\kappa(\alpha)",
                "cumulant generating function",
                r"$\log\operatorname{E}e^{\alpha s}$ of one score",
                "累积量生成函数",
                "큐뮬런트 생성 함수",
                "cosine",
            ),
            Symbol(
                "Z",
                "partition function",
                r"$\sum_i e^{\alpha s_i}$",
                "配分函数",
                "분배 함수",
                "exact",
            ),
            Symbol(
                r"\Phi",
                "free energy",
                r"$\operatorname{E}\log Z$",
                "自由能",
                "자유 에너지",
                "exact",
            ),
            Symbol(
                r"\alpha^*",
                "best α",
                "where the approximate mean gradient is largest",
                "最优逆温度",
                "최적 역온도",
                "normal",
            ),
            Symbol(
                "W",
                "Lambert's function",
                "the inverse of $we^w$",
                "朗伯 W 函数",
                "람베르트 W 함수",
                "normal",
            ),
            Symbol(
                r"\alpha_c",
                "critical α",
                r"$\sqrt{2\log n}$, where random rows freeze: a few keys hold the weight",
                "临界逆温度",
                "임계 역온도",
                "freezing",
            ),
        ),
    ),
    Group(
        "Something to find",
        (
            Symbol(
                "s_*",
                "score of the needle",
                "of the key that is meant",
                "目标键的分数",
                "목표 키의 스코어",
                "needle",
            ),
            Symbol(
                "P",
                "weight of the needle",
                r"$e^{\alpha s_*}/Z$",
                "目标键的权重",
                "목표 키의 가중치",
                "needle",
            ),
            Symbol(
                r"\theta",
                "strength of a needle",
                r"its score has the density $f(s)e^{\theta s}$, up to a factor",
                "指数倾斜参数",
                "지수 기울임 모수",
                "needle",
            ),
            Symbol(
                "I",
                "information",
                r"$\log n$ less the least mean of $-\log P$",
                "互信息",
                "상호 정보량",
                "needle",
            ),
        ),
    ),
    Group(
        "Rules and training",
        (
            Symbol(
                r"\ell_i",
                "logit",
                r"what softmax is taken of: the scaled $q\cdot k_i$, and what a mask adds",
                "对数几率（logit）",
                "로짓",
                "audit",
            ),
            Symbol(
                r"\ell_0",
                "sink",
                "a logit without a value, which takes weight from the keys",
                "注意力汇点",
                "어텐션 싱크",
                "audit",
            ),
            Symbol(
                "L",
                "training length",
                "number of keys in training",
                "训练长度",
                "학습 길이",
                "policies",
            ),
            Symbol(
                "c", "factor on the output", "", "输出的缩放系数", "출력 스케일링 계수", "training"
            ),
            Symbol(r"\eta", "learning rate", "", "学习率", "학습률", "training"),
        ),
    ),
)


def page() -> str:
    """Return the page in Markdown."""
    groups = "\n".join(f"## {title}\n\n{entries(symbols)}" for title, symbols in GROUPS)
    return f"{INTRODUCTION}\n{groups}"


INTRODUCTION = (
    "# Notation\n\n"
    "The symbols of the book, each with the chapter that defines it, and its names in Chinese and "
    "Korean, the languages of some of the sources. Logarithms are natural. A letter that means "
    'something else in one place is said to do so there: "here" for a section, "in this chapter" '
    "for all of it.\n"
)


def entries(symbols: tuple[Symbol, ...]) -> str:
    """Return symbols as a list of definitions."""
    return "\n".join(entry(symbol) for symbol in symbols)


def entry(symbol: Symbol) -> str:
    """Return one symbol with its names, its meaning and its chapter."""
    meaning = f": {symbol.meaning}" if symbol.meaning else ""
    return (
        f"${symbol.latex}$\n"
        f": *{symbol.english}*{meaning}. "
        f'<span lang="zh">{symbol.chinese}</span> · <span lang="ko">{symbol.korean}</span> · '
        f"[{symbol.chapter.replace('_', ' ')}](chapters/{symbol.chapter})\n"
    )


if __name__ == "__main__":
    replace(PAGE, page().encode("utf-8"))
    print(f"wrote {PAGE.name}")
