import torch
from pathlib import Path
print(torch.cuda.is_available(), Path('data'))
